"""How a client finds the server, and with which key."""

import json

import pandastack
import pytest
from pandastack import Sandbox, templates, tokens

from support.server import API, TOKEN


def write_config(home, **content):
    folder = home / ".config" / "pandastack"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(content))


def test_two_environment_variables_are_enough(monkeypatch, no_environment):
    monkeypatch.setenv("PANDASTACK_API", API)
    monkeypatch.setenv("PANDASTACK_API_KEY", TOKEN)
    assert pandastack.Client().me()


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_the_address_may_end_in_a_slash_or_in_v1(no_environment, suffix):
    assert pandastack.Client(api_url=API + suffix, api_key=TOKEN).me()


@pytest.mark.parametrize("key", ["token", "api_key"])
def test_the_configuration_file_is_enough(no_environment, key):
    write_config(no_environment, api_url=API, **{key: TOKEN})
    assert pandastack.Client().me()


def test_arguments_win_over_the_environment(monkeypatch, no_environment):
    monkeypatch.setenv("PANDASTACK_API", "http://127.0.0.1:1")
    monkeypatch.setenv("PANDASTACK_API_KEY", "wrong")
    assert pandastack.Client(api_url=API, api_key=TOKEN).me()


def test_without_a_key_nothing_is_sent(no_environment):
    with pytest.raises(pandastack.AuthError, match="PANDASTACK_API_KEY is required"):
        pandastack.Client(api_url="http://127.0.0.1:1").me()


def test_the_default_client_serves_the_module_level_calls(client):
    pandastack.set_default_client(client)
    try:
        with Sandbox.create(template="base") as sandbox:
            assert sandbox.id in [listed.id for listed in Sandbox.list()]
            assert Sandbox.get(sandbox.id).id == sandbox.id
        assert "base" in [template.name for template in templates.list()]
        assert templates.get("base").name == "base"
        assert isinstance(tokens.list(), list)
    finally:
        pandastack.set_default_client(None)
