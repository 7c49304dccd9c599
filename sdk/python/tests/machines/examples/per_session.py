"""One sandbox per session: variables and files last from turn to turn, and end with the conversation."""

from pandastack import NotFoundError, Sandbox


class Session:
    def __init__(self) -> None:
        self.sandbox = Sandbox.create(template="base", ttl_seconds=600, metadata={"session": "42"})
        self.context = self.sandbox.create_code_context("python")

    def turn(self, code: str) -> str:
        cell = self.context.run_code(code)
        return cell.error or cell.text or cell.stdout

    def close(self) -> None:
        self.context.close()
        self.sandbox.kill()


session = Session()
try:
    session.turn("prices = {'apple': 3, 'pear': 4}")
    session.sandbox.filesystem.write("/workspace/basket.txt", "apple pear apple")
    total = "sum(prices[name] for name in open('/workspace/basket.txt').read().split())"
    assert session.turn(total) == "10", session.turn(total)
    assert "KeyError" in session.turn("prices['plum']")
    assert session.turn("len(prices)") == "2", "an error costs no variables"
    found = Sandbox.get(session.sandbox.id)
    assert found.metadata["session"] == "42"
finally:
    session.close()
try:
    Sandbox.get(session.sandbox.id)
except NotFoundError:
    pass
else:
    raise AssertionError("it is still there")
