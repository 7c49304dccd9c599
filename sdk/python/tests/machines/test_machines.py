"""Tests that need a special server and take longer."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from colour import Colour, settle

from sandling import BadRequestError, Client, NotFoundError, TemplateBuildError

FIRST = """
from sandling import Sandbox, local

with Sandbox.create() as sandbox:
    assert sandbox.template == "code-interpreter"
    assert sandbox.run_code("import pandas; print(6 * 7)").stdout == "42\\n"
local.stop()
"""


def test_a_sandbox_is_made_where_nothing_is_set(tmp_path: Path) -> None:
    if "SANDLING_BINARY" not in os.environ or "SANDLING_TEMPLATES" not in os.environ:
        pytest.skip("SANDLING_BINARY and SANDLING_TEMPLATES name no server that could make machines")
    binary = Path(os.environ["SANDLING_BINARY"])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SANDLING_")}
    # Like after an installation: the binary is on the PATH, and the home has templates.
    environment = {**kept, "PATH": f"{binary.parent}:{kept['PATH']}", "XDG_DATA_HOME": str(tmp_path)}
    home = tmp_path / "sandling"
    home.mkdir()
    (home / "templates").symlink_to(os.environ["SANDLING_TEMPLATES"])
    subprocess.run([sys.executable, "-c", FIRST], env=environment, check=True, timeout=240)


def test_a_template_is_built_and_used(colour: Colour, client: Client) -> None:
    endpoint = client._transport.located()
    name, log = f"sdk-{uuid.uuid4().hex[:8]}", []

    async def work() -> None:
        own = colour.Client(endpoint.url, endpoint.token)
        try:
            build = colour.Template.build(
                name,
                base="code-interpreter",
                packages=["tree"],
                npm=["cowsay@1.6.0"],
                pip=["six==1.16.0"],
                requirements="toolz\n",
                on_log=log.append,
                client=own,
            )
            made = await settle(build)
            assert made.ready and made.name == name and "tree" in made.tools and "six" in made.description
            sandbox = await settle(own.sandboxes.create(name, ttl_seconds=300))
            line = "tree --version && cowsay moo && python3 -c 'import six, toolz; print(six.__version__)'"
            used = await settle(sandbox.exec(line))
            assert used.ok and "moo" in used.stdout and used.stdout.endswith("\n1.16.0\n"), used
            left = "ls -d /run/sandling-build /.sandling-build /run/.sandling-secrets /var/tmp/npm 2>/dev/null"
            assert (await settle(sandbox.exec(left))).stdout == ""
            await settle(sandbox.kill())
        finally:
            await settle(own.templates.delete(name))
        with pytest.raises(NotFoundError):
            await settle(own.templates.get(name))
        with pytest.raises(TemplateBuildError, match="found for no-such-package-anywhere"):
            await settle(colour.Template.build(name, pip=["no-such-package-anywhere"], client=own))
        with pytest.raises(BadRequestError, match="cannot be a package of PyPI"):
            await settle(colour.Template.build(name, pip=["--index-url=http://example.com"], client=own))

    colour.run(work)
    assert any("RUN pip install -r requirements.txt six==1.16.0" in line for line in log), log


def test_a_dockerfile_is_built_and_its_steps_are_heard(colour: Colour, client: Client, tmp_path: Path) -> None:
    endpoint = client._transport.located()
    name, log = f"sdk-{uuid.uuid4().hex[:8]}", []
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "greeting").write_text("hello")
    (tmp_path / "app" / "secret.key").write_text("key")
    (tmp_path / ".dockerignore").write_text("**/*.key\n")
    (tmp_path / "Dockerfile").write_text(
        "FROM base AS first\nARG WHO=nobody\nCOPY app /app\nRUN echo $WHO >>/app/greeting\n"
        "FROM base\nRUN touch /second\n"
    )

    async def work() -> None:
        own = colour.Client(endpoint.url, endpoint.token)
        try:
            build = colour.Template.build(
                name, context=tmp_path, build_args={"WHO": "world"}, target="first", on_log=log.append, client=own
            )
            assert (await settle(build)).ready
            sandbox = await settle(own.sandboxes.create(name, ttl_seconds=300))
            found = await settle(sandbox.exec("cat /app/greeting; ls /app /second 2>/dev/null"))
            assert found.stdout == "helloworld\n/app:\ngreeting\n", found
            await settle(sandbox.kill())
        finally:
            await settle(own.templates.delete(name))

    colour.run(work)
    assert any("RUN echo $WHO" in line for line in log), log
