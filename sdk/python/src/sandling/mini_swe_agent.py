"""A sandbox as the environment of mini-SWE-agent: ``pip install "sandling[mini-swe-agent]"``.

In Python::

    from minisweagent.agents.default import DefaultAgent
    from sandling.mini_swe_agent import SandlingEnvironment

    with SandlingEnvironment(template="agent", cwd="/workspace") as environment:
        DefaultAgent(model, environment, ...).run("Fix the bug")

In a configuration file, name the class::

    environment:
      environment_class: sandling.mini_swe_agent.SandlingEnvironment
      image: python:3.12-slim

``environment.sandbox`` is the sandbox itself: fork it, rewind it or change its network.
"""

from __future__ import annotations

import os
import platform
from typing import Any, Dict, List, Optional

from minisweagent.exceptions import Submitted
from minisweagent.utils.serialize import recursive_merge
from pydantic import BaseModel

from ._sync.sandbox import Sandbox
from .errors import SandboxTimeout, SandlingError
from .options import DEFAULT_TEMPLATE

#: The first line of the output of a command that ends the agent's work.
SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class SandlingEnvironmentConfig(BaseModel):  # type: ignore[misc]  # pydantic is installed only where it is tested
    """The sandbox of an agent. Missing options come from the template and the server."""

    template: str = DEFAULT_TEMPLATE
    #: An OCI image instead of a template.
    image: Optional[str] = None
    #: Where commands run; by default where the template or the image says.
    cwd: str = ""
    env: Dict[str, str] = {}
    #: Variables of this process that commands get, too, if they are set.
    forward_env: List[str] = []
    #: Seconds that a command may take.
    timeout: int = 30
    #: The command is appended to it.
    interpreter: List[str] = ["bash", "-lc"]
    cpu: Optional[int] = None
    memory_mb: Optional[int] = None
    disk_mb: Optional[int] = None
    #: As in ``Sandbox.create``, such as ``{"allow": ["pypi"]}``.
    network: Optional[Dict[str, Any]] = None
    #: A sandbox ends after this time, even if the agent was killed.
    ttl_seconds: int = 2 * 3600


class SandlingEnvironment:
    """Runs an agent's commands in a sandbox of its own, which ends with :meth:`cleanup` or the ``with`` block."""

    def __init__(self, *, config_class: type = SandlingEnvironmentConfig, **options: Any) -> None:
        self.config = config_class(**options)
        wanted = self.config.model_dump(
            include={"image", "cpu", "memory_mb", "disk_mb", "network", "ttl_seconds"}, exclude_none=True
        )
        self.sandbox = Sandbox.create(self.config.template, **wanted)

    def execute(self, action: Dict[str, Any], cwd: str = "", *, timeout: Optional[int] = None) -> Dict[str, Any]:
        seconds = timeout or self.config.timeout
        printed: List[str] = []
        forwarded = {name: os.environ[name] for name in self.config.forward_env if name in os.environ}
        try:
            ran = self.sandbox.exec(
                [*self.config.interpreter, action.get("command", "")],
                seconds,
                cwd=cwd or self.config.cwd or None,
                env={**forwarded, **self.config.env},
                on_stdout=printed.append,
                on_stderr=printed.append,
            )
        except SandboxTimeout as error:
            return _failed("".join(printed), error, f"the command timed out after {seconds} seconds")
        except SandlingError as error:
            return _failed("".join(printed), error, f"the command could not be run: {error}")
        output = {"output": "".join(printed), "returncode": ran.exit_code, "exception_info": ""}
        _check_finished(output)
        return output

    def get_template_vars(self, **more: Any) -> Dict[str, Any]:
        variables: Dict[str, Any] = recursive_merge(self.config.model_dump(), platform.uname()._asdict(), more)
        return variables

    def serialize(self) -> Dict[str, Any]:
        kind = f"{self.__class__.__module__}.{self.__class__.__name__}"
        config = {"environment": self.config.model_dump(mode="json"), "environment_type": kind}
        return {"info": {"config": config}}

    def cleanup(self) -> None:
        self.sandbox.close()

    def __enter__(self) -> SandlingEnvironment:
        return self

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def _failed(output: str, error: Exception, why: str) -> Dict[str, Any]:
    extra = {"exception_type": type(error).__name__, "exception": str(error)}
    return {"output": output, "returncode": -1, "exception_info": why, "extra": extra}


def _check_finished(output: Dict[str, Any]) -> None:
    """Ends the agent's work if the output begins with the agreed line."""
    first, _, rest = output["output"].lstrip().partition("\n")
    if first.strip() == SUBMIT and output["returncode"] == 0:
        extra = {"exit_status": "Submitted", "submission": rest}
        raise Submitted({"role": "exit", "content": rest, "extra": extra})
