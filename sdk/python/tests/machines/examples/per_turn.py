"""One sandbox per turn: what the model wrote is run in a machine that nobody sees again."""

from pandastack import Sandbox


def run_turn(code: str) -> str:
    with Sandbox.create(template="base", ttl_seconds=300) as sandbox:
        sandbox.filesystem.write("/workspace/turn.py", code)
        result = sandbox.exec("python3 /workspace/turn.py", timeout_seconds=30)
        return result.stdout if result.exit_code == 0 else result.stderr


assert run_turn("print(sum(range(101)))") == "5050\n"
assert "ZeroDivisionError" in run_turn("1 / 0")
assert run_turn("import os; print(os.path.exists('/workspace/left')); open('/workspace/left', 'w')") == "False\n"
assert run_turn("import os; print(os.path.exists('/workspace/left'))") == "False\n"
