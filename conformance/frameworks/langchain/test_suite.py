"""The suite of langchain_tests for sandboxes."""

import pytest
from e2b import Sandbox
from langchain_e2b import E2BSandbox
from langchain_tests.integration_tests import SandboxIntegrationTests


class TestSandbox(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self):
        with Sandbox.create(timeout=900) as made:
            yield E2BSandbox(sandbox=made)
