"""Waiting for something, with a deadline."""

import time


def until(what, condition, seconds=30):
    """Asks `condition` until it answers something true, and returns that."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = condition()
        if answer:
            return answer
        time.sleep(0.1)
    raise AssertionError(f"{what} did not happen within {seconds} s")
