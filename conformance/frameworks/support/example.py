"""Runs the examples of docs/frameworks.md with a scripted model."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from model_server import ModelServer

PAGE = Path(__file__).parents[3] / "docs" / "frameworks.md"


def code_of(title):
    """The language and the code below a title of the page."""
    section = PAGE.read_text().split(f"\n### {title}\n", 1)[1].split("\n### ", 1)[0]
    language, code = re.search(r"```(\w+)\n(.*?)```", section, re.DOTALL).groups()
    return language, code


@pytest.fixture
def model():
    """Starts a model with a script; `requests` has the requests that it got."""
    started = []

    def start(script):
        started.append(ModelServer(script))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def run_example(model, tmp_path):
    """Runs the example below a title. Returns what it printed, and the requests that the model got as one text."""

    def run(title, script):
        language, code = code_of(title)
        server = model(script)
        url = f"{server.url}/v1"
        settings = {"OPENAI_BASE_URL": url, "OPENAI_API_BASE": url, "OPENAI_API_KEY": "none"}
        if language == "javascript":
            # Node finds packages relative to the file.
            file, program = Path(os.environ["FRAMEWORK_PACKAGES"]) / "example.mjs", "node"
        else:
            file, program = tmp_path / "example.py", sys.executable
        file.write_text(code)
        ran = subprocess.run(
            [program, str(file)],
            check=False,
            env={**os.environ, **settings},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout, json.dumps(server.requests)

    return run
