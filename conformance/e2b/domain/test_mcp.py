"""MCP servers in a sandbox, behind one URL, used by the official MCP client."""

import asyncio
import os
import ssl

import httpx2
import pytest
from e2b import Sandbox
from e2b.exceptions import SandboxException
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

# A server that needs no packages.
ADDER = """
import json, os, sys

TOOL = {"name": "add", "description": "Adds.", "inputSchema": {"type": "object"}}
ABOUT = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "adder", "version": "1"}}

def answer(method, params):
    if method == "tools/call":
        text = os.environ["SIGN"] + str(sum(params["arguments"]["numbers"]))
        return {"content": [{"type": "text", "text": text}]}
    return {"initialize": ABOUT, "tools/list": {"tools": [TOOL]}}[method]

for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params"))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
# Sandboxes have no network, so the repository that the gateway clones is in the sandbox itself.
PREPARE = """
git config --system url./srv/.insteadOf https://github.com/ && git config --system safe.directory '*'
cd /srv/team/adder && git init --quiet . && git add . &&
git -c user.name=team -c user.email=team@example.com commit --quiet --message 'a server'
cp -r /srv/team/adder /srv/team/other
"""


@pytest.fixture(scope="module")
def prepared():
    """The id of a snapshot that has the servers' repository."""
    with Sandbox.create("code-interpreter-v1") as source:
        source.files.write("/srv/team/adder/adder.py", ADDER, user="root")
        source.commands.run(PREPARE, user="root")
        snapshot = source.create_snapshot().snapshot_id
    yield snapshot
    Sandbox.delete_snapshot(snapshot)


def trusted():
    return ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])


async def use(sandbox, token):
    """The names of all tools, and what each says to three numbers."""
    transport = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, verify=trusted())
    async with transport, Client(streamable_http_client(sandbox.get_mcp_url(), http_client=transport)) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        answers = [await client.call_tool(name, {"numbers": [1, 2, 3]}) for name in names]
        return {name: answer.content[0].text for name, answer in zip(names, answers)}


def test_the_servers_of_a_sandbox_answer_at_one_url_to_those_who_have_the_token(prepared):
    server = {"install_cmd": "cp adder.py installed.py", "run_cmd": "python3 installed.py", "envs": {"SIGN": "+"}}
    other = {"run_cmd": "python3 adder.py", "envs": {"SIGN": "="}}
    servers = {"github/team/adder": server, "github/team/other": other}
    with Sandbox.create(prepared, mcp=servers) as sandbox:
        assert sandbox.get_mcp_url() == f"https://{sandbox.get_host(50005)}/mcp"
        token = sandbox.get_mcp_token()
        assert asyncio.run(use(sandbox, token)) == {"add": "+6", "other-add": "=6"}
        assert Sandbox.connect(sandbox.sandbox_id).get_mcp_token() == token
        refused = httpx2.post(
            sandbox.get_mcp_url(), json={}, headers={"Authorization": "Bearer wrong"}, verify=trusted()
        )
        assert refused.status_code == 401


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        ({"duckduckgo": {}}, "the MCP server duckduckgo cannot be had here"),
        ({"github/team/absent": {"run_cmd": "true"}}, "git clone failed"),
        ({"github/team/adder": {"run_cmd": "false"}}, "has ended"),
    ],
)
def test_a_server_that_cannot_start_is_an_error_that_says_why(prepared, servers, said):
    with pytest.raises(SandboxException, match=said):
        Sandbox.create(prepared, mcp=servers)
