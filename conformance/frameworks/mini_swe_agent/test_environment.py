"""What mini-SWE-agent expects of an environment, checked as its tests check Docker's."""

import pytest
from minisweagent.environments import get_environment
from minisweagent.exceptions import Submitted
from sandling.mini_swe_agent import SandlingEnvironment


@pytest.fixture(scope="module")
def environment():
    made = get_environment(
        {
            "environment_class": "sandling.mini_swe_agent.SandlingEnvironment",
            "template": "base",
            "cwd": "/tmp",
            "env": {"COLOR": "blue"},
            "forward_env": ["FORWARDED", "COLOR"],
        }
    )
    assert isinstance(made, SandlingEnvironment)
    yield made
    made.cleanup()


def test_output_and_exit_codes(environment):
    ran = environment.execute({"command": "pwd; echo oops >&2; exit 3"})
    assert (ran["output"], ran["returncode"], ran["exception_info"]) == ("/tmp\noops\n", 3, "")
    assert environment.execute({"command": "pwd"}, cwd="/usr")["output"] == "/usr\n"


def test_variables(environment, monkeypatch):
    monkeypatch.setenv("FORWARDED", "yes")
    monkeypatch.setenv("COLOR", "red")
    assert environment.execute({"command": "echo $COLOR $FORWARDED"})["output"] == "blue yes\n"


def test_a_command_that_takes_too_long_is_ended_and_the_agent_sees_its_output(environment):
    ran = environment.execute({"command": "echo early; sleep 60"}, timeout=2)
    assert ran["output"] == "early\n" and ran["returncode"] == -1
    assert "timed out after 2 seconds" in ran["exception_info"]


def test_the_agreed_line_ends_the_work(environment):
    with pytest.raises(Submitted) as ended:
        environment.execute({"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo patch"})
    assert ended.value.messages[0]["extra"] == {"exit_status": "Submitted", "submission": "patch\n"}


def test_it_says_what_it_is(environment):
    told = environment.serialize()["info"]["config"]
    assert told["environment"]["template"] == "base"
    assert told["environment_type"] == "sandling.mini_swe_agent.SandlingEnvironment"
    assert environment.get_template_vars(task="x")["cwd"] == "/tmp"
