"""Prints the rewards of a job of harbor, and fails unless every task got 1.0.

    rewards.py JOB TASKS
"""

import json
import pathlib
import sys

job, tasks = map(pathlib.Path, sys.argv[1:])
wanted = sorted(path.name for path in tasks.iterdir())
rewards = {}
for path in job.glob("*/result.json"):
    result = json.loads(path.read_text())
    verified = result.get("verifier_result") or {}
    rewards[result["task_name"]] = (verified.get("rewards") or {}).get("reward")
    if error := result.get("exception_info"):
        print(f"{result['task_name']}: {error}")
for name in wanted:
    print(f"{name}: {rewards.get(name)}")
sys.exit(len(wanted) < 5 or any(rewards.get(name) != 1.0 for name in wanted))
