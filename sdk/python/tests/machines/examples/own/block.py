"""The shortest form: the class itself is the block."""

from sandling import NotFoundError, Sandbox

with Sandbox(template="base", ttl_seconds=300) as sb:
    assert sb.run("echo $((6 * 7))").stdout == "42\n"
    assert sb.run("exit 3").exit_code == 3
    assert sb.run_code("print(sum(range(5)))").stdout == "10\n"
try:
    Sandbox.get(sb.id)
except NotFoundError:
    pass
else:
    raise AssertionError("the block left it behind")
