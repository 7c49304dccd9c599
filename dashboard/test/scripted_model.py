"""A model that follows a script, for the tests of the agents' page. Prints its address and serves until stdin closes.

With the argument ``race`` or ``story`` it plays one role for each attempt of a best of N.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any, Dict, List

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "sdk" / "python" / "tests" / "frameworks"))
from model_server import ModelServer  # noqa: E402

HOSTILE = "<x-evil>{}<img src=x onerror=top.hacked=1></x-evil>"


def race(request: Dict[str, Any], _: int) -> Any:
    """Each attempt writes its own number. Only the second one is right."""
    said = json.dumps(request)
    attempt = re.search(r"This is attempt (\d+) of", said)
    number = attempt.group(1) if attempt else "0"
    if "tool_result" not in said:
        content = f"answer = {int(number) * 21}  # {HOSTILE.format('file')}\n"
        return [("write_file", {"path": "answer.py", "content": content})]
    return f"Attempt {number} wrote its answer."


MEDIANS = {
    "1": """def median(values):
    values.sort()
    return values[len(values) // 2]
""",
    "2": """def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
""",
    "3": """import statistics


def median(values):
    return statistics.median(list(values))
""",
}

TRY = "python3 -B -c 'from stats import median; print(median([3, 1, 2]), median([4, 1, 3, 2]))'"


def story(request: Dict[str, Any], _: int) -> Any:
    """A best of N for the screenshots."""
    said = json.dumps(request)
    attempt = re.search(r"This is attempt (\d+) of", said)
    number = attempt.group(1) if attempt else "2"
    turns: List[Any] = [
        [("write_file", {"path": "stats.py", "content": MEDIANS[number]})],
        [("run_command", {"command": TRY})],
        "stats.py has the median now, and I tried it with an odd and an even number of values.",
    ]
    return turns[min(said.count("tool_result"), len(turns) - 1)]


SCRIPT = [
    [("write_file", {"path": "/root/n.txt", "content": HOSTILE.format("argument")})],
    [("run_command", {"command": "cat /root/n.txt; sleep 15; echo; echo step-two-is-done; exit 3"})],
    HOSTILE.format("answer") + " It is 42.",
]

server = ModelServer({"race": race, "story": story}.get("".join(sys.argv[1:]), SCRIPT))
print(server.url, flush=True)
sys.stdin.read()
server.close()
