"""The suite of langchain_tests for sandboxes, with Sandling's own backend."""

import pytest
from langchain_tests.integration_tests import SandboxIntegrationTests
from sandling import Sandbox
from sandling.deepagents import SandboxBackend


class TestSandbox(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self):
        with Sandbox.create(ttl_seconds=900) as made:
            yield SandboxBackend(made)


def test_a_command_that_takes_too_long_is_ended_and_the_agent_sees_its_output():
    with Sandbox.create(ttl_seconds=300) as made:
        ended = SandboxBackend(made).execute("echo early; sleep 60", timeout=2)
    assert ended.exit_code == 124 and "early" in ended.output and "timed out after 2 seconds" in ended.output
