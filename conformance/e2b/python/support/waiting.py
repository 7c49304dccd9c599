"""Waiting for something, with a deadline."""

import time


def until(what, condition, seconds=180):
    """Asks `condition` until it answers something true, and returns that. On a busy host, much takes long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = condition()
        if answer:
            return answer
        time.sleep(0.1)
    raise AssertionError(f"{what} did not happen within {seconds} s")
