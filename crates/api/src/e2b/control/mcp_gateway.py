#!/usr/bin/env python3
"""Serves the tools, prompts and resources of several MCP servers at one URL, as E2B's clients expect it.

    GATEWAY_ACCESS_TOKEN=… mcp-gateway --config '{"github/OWNER/REPOSITORY": {"run_cmd": "…", "install_cmd": "…"}}'

It returns when the URL answers, and goes on in the background. It uses only the standard library, because it must run in
any image that has Python, without a network.
"""

import argparse
import hmac
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 50005
TOKEN_FILE = "/etc/mcp-gateway/.token"
LOG_FILE = "/var/log/mcp-gateway.log"
SOURCES = "/opt/mcp-gateway"
VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")
# A server may answer this much later, or its request fails.
START_S, CALL_S = 50, 600
LARGEST_BODY = 16 << 20
READY = "ready"
# Servers that E2B's clients know by name, and the commands that run them from npm's or Python's registry.
BY_NAME = {
    "fetch": "uvx mcp-server-fetch",
    "filesystem": "npx --yes @modelcontextprotocol/server-filesystem {paths}",
    "git": "uvx mcp-server-git",
    "memory": "npx --yes @modelcontextprotocol/server-memory",
    "sequentialthinking": "npx --yes @modelcontextprotocol/server-sequential-thinking",
    "time": "uvx mcp-server-time",
}
# The lists of MCP: method, field of the result, what identifies an entry, the method that uses one, the server's capability.
LISTS = (
    ("tools/list", "tools", "name", "tools/call", "tools"),
    ("prompts/list", "prompts", "name", "prompts/get", "prompts"),
    ("resources/list", "resources", "uri", "resources/read", "resources"),
    ("resources/templates/list", "resourceTemplates", "uriTemplate", None, "resources"),
)


class Refused(Exception):
    """A configuration that cannot be served. The text is for the person who wrote it."""


class Failed(Exception):
    """A JSON-RPC error."""

    def __init__(self, code, message, data=None):
        super().__init__(message)
        self.error = {"code": code, "message": message, **({} if data is None else {"data": data})}


class Server:
    """One MCP server: a process that speaks JSON lines."""

    def __init__(self, name, command, folder, variables):
        self.name = name
        self.lock = threading.Lock()
        self.waiting = {}
        self.number = 0
        self.process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=folder,
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        threading.Thread(target=self.read, daemon=True).start()

    def initialize(self):
        about = {"name": "mcp-gateway", "version": "1"}
        params = {"protocolVersion": VERSIONS[0], "capabilities": {}, "clientInfo": about}
        self.offers = self.ask("initialize", params, START_S).get("capabilities", {})
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message):
        with self.lock:
            try:
                self.process.stdin.write(json.dumps(message).encode() + b"\n")
                self.process.stdin.flush()
            except OSError:
                raise Failed(-32000, f"the MCP server {self.name} has ended") from None

    def ask(self, method, params, seconds=CALL_S):
        with self.lock:
            self.number += 1
            number = self.number
            answered = self.waiting[number] = [threading.Event(), None]
        try:
            self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            if not answered[0].wait(seconds):
                raise Failed(-32001, f"the MCP server {self.name} did not answer {method} within {seconds} seconds")
        finally:
            self.waiting.pop(number, None)
        answer = answered[1]
        if answer is None:
            raise Failed(-32000, f"the MCP server {self.name} has ended; {LOG_FILE} in the sandbox says why")
        if "error" in answer:
            error = answer["error"]
            raise Failed(error.get("code", -32603), error.get("message", ""), error.get("data"))
        return answer.get("result", {})

    def read(self):
        """Passes answers on. A server's own requests are refused, and its notifications are dropped."""
        for line in self.process.stdout:
            try:
                message = json.loads(line)
                number = message.get("id")
            except (ValueError, AttributeError):
                continue
            if "method" not in message:
                if waiting := self.waiting.get(number):
                    waiting[1] = message
                    waiting[0].set()
            elif number is not None:
                result = {"result": {}} if message["method"] == "ping" else {"error": {"code": -32601, "message": "no"}}
                try:
                    self.send({"jsonrpc": "2.0", "id": number, **result})
                except Failed:
                    pass
        self.process.wait()
        for waiting in list(self.waiting.values()):
            waiting[0].set()


class Gateway:
    def __init__(self, servers):
        self.servers = servers
        self.known = {}

    def entries(self, method, field, key, capability):
        """All entries of a list by the names that clients see. A name that is taken gets its server's name before it."""
        entries = self.known[method] = {}
        for server in self.servers:
            if capability not in server.offers or server.process.poll() is not None:
                continue
            params = {}
            while True:
                page = server.ask(method, params)
                for entry in page.get(field, []):
                    seen = entry[key] if entry[key] not in entries else f"{server.name.split('/')[-1]}-{entry[key]}"
                    entries[seen] = (server, entry)
                if not page.get("nextCursor"):
                    break
                params = {"cursor": page["nextCursor"]}
        return entries

    def answer(self, method, params):
        if method == "initialize":
            asked = params.get("protocolVersion")
            capabilities = {kind: {} for *_, kind in LISTS if any(kind in server.offers for server in self.servers)}
            return {
                "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
                "capabilities": capabilities,
                "serverInfo": {"name": "mcp-gateway", "version": "1"},
            }
        if method == "ping":
            return {}
        for listing, field, key, use, capability in LISTS:
            if method == listing:
                entries = self.entries(listing, field, key, capability)
                return {field: [{**entry, key: seen} for seen, (_, entry) in entries.items()]}
            if method == use:
                name = params.get(key)
                known = self.known.get(listing, {})
                found = known.get(name) or self.entries(listing, field, key, capability).get(name)
                if found is None:
                    raise Failed(-32602, f"there is no {name!r}; {listing} lists what there is")
                server, entry = found
                return server.ask(method, {**params, key: entry[key]})
        raise Failed(-32601, f"the method {method} is not served here")


class Handler(BaseHTTPRequestHandler):
    """MCP's streamable HTTP without sessions: every answer is one JSON object."""

    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_POST(self):
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            return self.reply(413, {"error": f"a request needs a Content-Length of at most {LARGEST_BODY}"}, close=True)
        body = self.rfile.read(int(length))
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.server.token}".encode()):
            return self.reply(401, {"error": "the header Authorization must have the gateway's token"})
        if self.path.partition("?")[0] != "/mcp":
            return self.reply(404, {"error": "the gateway is at /mcp"})
        try:
            request = json.loads(body)
            method, params = request.get("method"), request.get("params") or {}
        except (ValueError, AttributeError):
            return self.reply(
                400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "not a request"}}
            )
        if method is None or request.get("id") is None:
            return self.reply(202)
        try:
            answer = {"result": self.server.gateway.answer(method, params)}
        except Failed as failed:
            answer = {"error": failed.error}
        except Exception as problem:
            answer = {"error": {"code": -32603, "message": f"{type(problem).__name__}: {problem}"}}
        self.reply(200, {"jsonrpc": "2.0", "id": request["id"], **answer})

    def do_GET(self):
        self.reply(405)

    def do_DELETE(self):
        self.reply(405)

    def reply(self, status, body=None, close=False):
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        if data:
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if close:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)


def fetched(name, url, settings):
    """Clones and installs a server from GitHub. Returns its folder."""
    folder = os.path.join(SOURCES, name)
    steps = [["git", "clone", "--quiet", "--depth=1", url, folder]]
    if os.path.isdir(folder):
        steps = []
    if install := setting(settings, "install_cmd"):
        steps.append(["bash", "-c", install])
    for step in steps:
        where = folder if os.path.isdir(folder) else "/"
        done = subprocess.run(step, cwd=where, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            said = (done.stderr or done.stdout).strip()[-2000:]
            raise Refused(f"{name}: {step[-1] if step[0] == 'bash' else 'git clone'} failed: {said}")
    return folder


def setting(settings, name):
    """A setting by its name in Python, or by its name in JavaScript."""
    first, *rest = name.split("_")
    return settings.get(name, settings.get(first + "".join(map(str.capitalize, rest))))


def started(name, settings):
    """Starts one server of the configuration."""
    if name.startswith("github/"):
        command = setting(settings, "run_cmd")
        if not command:
            raise Refused(f"{name}: the setting run_cmd is missing")
        folder = fetched(name, f"https://github.com/{name.removeprefix('github/')}", settings)
        return Server(name, command, folder, setting(settings, "envs") or {})
    if name not in BY_NAME:
        known = ", ".join(BY_NAME)
        raise Refused(
            f"the MCP server {name} cannot be had here. Use one of {known}, or github/OWNER/REPOSITORY with run_cmd"
        )
    paths = " ".join(map(shlex.quote, settings.get("paths", [])))
    return Server(name, BY_NAME[name].format(paths=paths), "/", {})


def serve(config, token, ready):
    """Serves for ever. Writes to `ready` that it serves, or what went wrong."""
    servers = []
    try:
        servers += [started(name, settings or {}) for name, settings in config.items()]
        for server in servers:
            server.initialize()
        http = ThreadingHTTPServer(("0.0.0.0", PORT), Handler)
        http.daemon_threads = True
        http.token, http.gateway = token, Gateway(servers)
    except (Refused, Failed, OSError) as problem:
        for server in servers:
            server.process.kill()
        ready.write(str(problem))
        return
    print(READY, end="", file=ready)
    ready.close()
    http.serve_forever()


def main():
    parser = argparse.ArgumentParser(prog="mcp-gateway", description="Serves MCP servers at one URL.")
    parser.add_argument("--config", required=True, help="the servers, as JSON")
    arguments = parser.parse_args()
    token = os.environ.pop("GATEWAY_ACCESS_TOKEN", "")
    if not token:
        sys.exit("mcp-gateway: the variable GATEWAY_ACCESS_TOKEN must have a token")
    try:
        config = json.loads(arguments.config)
        if not all(isinstance(settings, (dict, type(None))) for settings in config.values()):
            raise ValueError("each server has an object of settings")
    except (ValueError, AttributeError) as problem:
        sys.exit(f"mcp-gateway: --config must be a JSON object of servers: {problem}")
    os.makedirs(os.path.dirname(TOKEN_FILE), mode=0o700, exist_ok=True)
    with open(os.open(TOKEN_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(token)
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        with open(reader) as ready:
            said = ready.read()
        sys.exit(0 if said == READY else f"mcp-gateway: {said or f'it ended; {LOG_FILE} says why'}")
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.close(reader)
    with open(LOG_FILE, "ab", buffering=0) as log, open("/dev/null") as nothing:
        for descriptor, stream in enumerate((nothing, log, log)):
            os.dup2(stream.fileno(), descriptor)
    with open(writer, "w") as ready:
        serve(config, token, ready)


if __name__ == "__main__":
    main()
