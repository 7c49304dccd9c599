"""Waiting for something to become true, with a deadline."""

import time


def until(what, condition, seconds=30.0):
    """Asks `condition` until it answers something true, and returns that."""
    deadline = time.monotonic() + seconds
    while True:
        if found := condition():
            return found
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.1)
