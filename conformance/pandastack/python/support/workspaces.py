"""Workspaces of the tests' own. The only place that knows the administrator's routes.

As a program, for the script that runs the suites: `token NAME` makes a workspace and prints a token of it, `unlimited
NAME…` takes its limits away, `left TOKEN…` prints the sandboxes that are still there.
"""

import sys
import uuid

from .wire import call


def make(name=None, **quota):
    """Makes a workspace, limits it, and returns an administrator's token of it."""
    name = name or f"conformance-{uuid.uuid4().hex[:8]}"
    expect(201, call("POST", "/v1/workspaces", body={"name": name}))
    limit(name, **quota)
    answer = call("POST", f"/v1/workspaces/{name}/tokens", body={"label": "conformance", "scope": "admin"})
    expect(201, answer)
    return answer.json()["token"]


LIMITS = (
    "sandboxes", "cpu", "memory_mb", "disk_mb", "creates_per_minute", "requests_per_second", "open_requests",
)


def limit(name, **quota):
    """Sets a workspace's limits, and removes all others."""
    expect(200, call("PUT", f"/v1/workspaces/{name}/quota", body=dict.fromkeys(LIMITS) | quota))


def sandboxes_of(token):
    answer = call("GET", "/v1/sandboxes", token=token)
    expect(200, answer)
    listed = answer.json()
    return [sandbox["id"] for sandbox in (listed["items"] if isinstance(listed, dict) else listed)]


def expect(status, answer):
    assert answer.status == status, f"wanted {status}, got {answer.status}: {answer.body[:500]!r}"


def main(arguments):
    match arguments:
        case ["token", name]:
            print(make(name))
        case ["unlimited", *names]:
            for name in names:
                limit(name)
        case ["left", *tokens]:
            for token in tokens:
                print(*sandboxes_of(token), sep="\n", end="")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
