"""Inspect's own checks of sandboxes, with Sandling's provider."""

import pytest
import pytest_asyncio
from inspect_ai.util._sandbox.self_check import *  # noqa: F403
from sandling.inspect_ai import SandlingEnvironment

#: Root may read and write any file. Inspect's own tests except the same checks for containers that run as root.
AS_ROOT = (
    "test_read_file_not_allowed",
    "test_write_text_file_without_permissions",
    "test_write_binary_file_without_permissions",
)


# The sandbox's client belongs to one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def environments():
    made = await SandlingEnvironment.sample_init("checks", "base", {})
    yield made
    await SandlingEnvironment.sample_cleanup("checks", "base", made, False)


@pytest.fixture
def sandbox_env(request, environments):
    if request.node.originalname in AS_ROOT:
        request.node.add_marker(pytest.mark.xfail(strict=True, reason="root may read and write any file"))
    return environments["default"]
