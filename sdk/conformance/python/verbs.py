"""The verbs of the cases as calls of the Python SDK, blocking or async. Each returns plain data."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import inspect
import time
from typing import Any, Awaitable, Callable, Dict, List

import httpx

from sandling import AuditLog, AuditRecord

Verb = Callable[..., Awaitable[Any]]
VERBS: Dict[str, Verb] = {}
PORT_WITHIN = 60.0


async def settle(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def each(source: Any) -> List[Any]:
    if hasattr(source, "__aiter__"):
        return [item async for item in source]
    return list(source)


async def first(source: Any, fits: Callable[[Any], bool]) -> Any:
    """The first matching item; closes the source."""
    if hasattr(source, "__aiter__"):
        async for item in source:
            if fits(item):
                await source.aclose()
                return item
    else:
        for item in source:
            if fits(item):
                source.close()
                return item
    raise AssertionError("the stream ended before it came")


async def entered(thing: Any) -> Any:
    return await thing.__aenter__() if hasattr(thing, "__aenter__") else thing.__enter__()


async def left(thing: Any) -> None:
    await thing.__aexit__(None, None, None) if hasattr(thing, "__aexit__") else thing.__exit__(None, None, None)


def verb(name: str) -> Callable[[Verb], Verb]:
    def keep(function: Verb) -> Verb:
        VERBS[name] = function
        return function

    return keep


def plain(value: Any) -> Any:
    """Data of the SDK as JSON-compatible data."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        data = {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
        for name in ("ok", "duration"):
            if hasattr(value, name):
                data[name] = getattr(value, name)
        return data
    return [plain(item) for item in value] if isinstance(value, list) else value


def simple(name: str, call: Callable[..., Any]) -> None:
    """A verb that is a single call."""

    async def run(_: Any, thing: Any, /, **arguments: Any) -> Any:
        return await settle(call(thing, **arguments))

    VERBS[name] = run


for own in [
    "exec",
    "run",
    "pause",
    "resume",
    "lifecycle",
    "refresh",
    "kill",
    "close",
    "metrics",
    "events",
    "hibernate",
    "wake",
    "promote",
    "start",
]:
    simple(own, lambda sandbox, own=own, **arguments: getattr(sandbox, own)(**arguments))
for own in ["append", "mkdir", "remove", "move", "chmod", "stat", "listdir"]:
    simple(
        f"files.{own}",
        lambda sandbox, own=own, **arguments: getattr(sandbox.files, own)(
            **{("content" if key == "text" else key): value for key, value in arguments.items()}
        ),
    )
simple("info", lambda sandbox: sandbox)
simple("set_ttl", lambda sandbox, seconds: sandbox.set_ttl(seconds))
simple("set_idle", lambda sandbox, seconds: sandbox.set_idle(seconds))
simple("set_persistent", lambda sandbox, persistent: sandbox.set_persistent(persistent))
simple("exec.wait", lambda job: job.wait())
simple("exec.status", lambda job: job.status())
simple("exec.signal", lambda job, signal: job.signal(signal))
simple("exec.kill", lambda job: job.kill())
simple("exec.forget", lambda job: job.forget())
simple("commands.list", lambda sandbox: sandbox.commands.list())
simple("contexts.list", lambda sandbox: sandbox.contexts.list())
simple("context.create", lambda sandbox, **arguments: sandbox.contexts.create(**arguments))
simple("context.restart", lambda context: context.restart())
simple("context.close", lambda context: context.close())
simple("version", lambda client: client.version())
simple("get", lambda client, id: client.sandboxes.get(id))
simple("delete", lambda client, id: client.sandboxes.delete(id))
simple("list", lambda client, **arguments: client.sandboxes.list(**arguments))
simple("templates.list", lambda client: client.templates.list())
simple("templates.get", lambda client, name: client.templates.get(name))
simple("tokens.create", lambda client, **arguments: client.tokens.create(**arguments))
simple("tokens.list", lambda client: client.tokens.list())
simple("tokens.revoke", lambda client, prefix: client.tokens.revoke(prefix))
simple("snapshots.list", lambda client: client.snapshots.list())
simple("snapshots.get", lambda client, id: client.snapshots.get(id))
simple("snapshots.delete", lambda client, id: client.snapshots.delete(id))
simple("secrets.set", lambda client, **arguments: client.secrets.set(**arguments))
simple("secrets.list", lambda client: client.secrets.list())
simple("secrets.remove", lambda client, name: client.secrets.remove(name))
simple("sandbox.secrets", lambda sandbox: sandbox.secrets.list())
simple("sandbox.grant", lambda sandbox, name: sandbox.secrets.grant(name))
simple("sandbox.revoke", lambda sandbox, name: sandbox.secrets.revoke(name))
simple("network.get", lambda sandbox: sandbox.network.get())
simple("network.set", lambda sandbox, **arguments: sandbox.network.set(**arguments))
simple("network.allow", lambda sandbox, entry: sandbox.network.allow(entry))
simple("network.deny", lambda sandbox: sandbox.network.deny())
simple("network.clear", lambda sandbox: sandbox.network.clear())
simple("network.usage", lambda sandbox: sandbox.network.usage())
simple("network.events", lambda sandbox: sandbox.network.events())
simple("network_default.get", lambda client, **arguments: client.network.get(**arguments))
simple("network_default.set", lambda client, **arguments: client.network.set(**arguments))
simple(
    "network_default.clear",
    lambda client, **arguments: client.network.clear(**arguments),
)
simple("volume.delete", lambda client, name: client.volumes.delete(name))
simple("fork", lambda sandbox, **arguments: sandbox.fork(**arguments))
simple("fork_many", lambda sandbox, count: sandbox.fork(count))
simple("fork_tree", lambda sandbox, **arguments: sandbox.fork_tree(**arguments))


@verb("me")
async def me(runner: Any, client: Any, api_key: str = "") -> Any:
    return await settle((runner.client_with(api_key) if api_key else client).me())


@verb("create")
async def create(runner: Any, client: Any, api_key: str = "", **options: Any) -> Any:
    client = runner.client_with(api_key) if api_key else client
    return await settle(client.sandboxes.create(**options))


@verb("block")
async def block(runner: Any, client: Any, **options: Any) -> Any:
    sandbox = await entered(runner.sandbox_class(client=client, **options))
    result = await settle(sandbox.exec("true"))
    assert result.ok
    await left(sandbox)
    return sandbox


@verb("volume")
async def volume(runner: Any, client: Any, name: str, size_gb: float) -> Any:
    made = await settle(runner.volume_class.get_or_create(name, size_gb, client=client))
    again = await settle(runner.volume_class.get_or_create(name, size_gb, client=client))
    assert again.name == made.name
    return {"name": made.name, "size_mb": made.size_mb}


@verb("volume.mount")
async def mount_volume(runner: Any, client: Any, name: str, path: str, read_only: bool = False) -> Any:
    """A sandbox with the volume."""
    mount = (await settle(runner.volume_class.get(name, client=client))).mount(path, read_only=read_only)
    return await settle(client.sandboxes.create("base", ttl_seconds=600, volumes=[mount]))


@verb("volume.clone")
async def clone_volume(runner: Any, client: Any, name: str, copy: str) -> Any:
    made = await settle((await settle(runner.volume_class.get(name, client=client))).clone(copy))
    return {"name": made.name, "size_mb": made.size_mb}


@verb("volume.snapshot")
async def snapshot_volume(runner: Any, client: Any, name: str, copy: str) -> Any:
    made = await settle((await settle(runner.volume_class.get(name, client=client))).snapshot(copy))
    return {"name": made.name, "size_mb": made.size_mb}


@verb("network.follow")
async def follow_network(_: Any, sandbox: Any, name: str) -> Any:
    return plain(await first(sandbox.network.follow_events(tail=100), lambda event: event.name == name))


@verb("pool.lend")
async def lend(runner: Any, client: Any, actor: str) -> Any:
    """Leases a machine from a new pool."""
    records: List[AuditRecord] = []
    pool = runner.pool_class(1, "base", ttl_seconds=600, client=client, audit=AuditLog(records.append))
    await settle(pool.start())
    sandbox = await settle(pool.acquire(60, actor=actor))
    runner.lent[sandbox.id] = pool, records
    return sandbox


@verb("pool.records")
async def records_of(runner: Any, sandbox: Any) -> Any:
    """Gives the machine back and returns its audit records."""
    pool, records = runner.lent.pop(sandbox.id)
    await settle(pool.release(sandbox))
    await settle(pool.close())
    return plain(records)


async def _streamed(stream: Any) -> Any:
    chunks = await each(stream)
    merged: List[List[str]] = []
    for name, text in chunks:
        if merged and merged[-1][0] == name:
            merged[-1][1] += text
        else:
            merged.append([name, text])
    digest = hashlib.sha256(stream.result.stdout.encode()).hexdigest()
    characters = len(stream.result.stdout)
    return {
        "chunks": merged,
        "result": plain(stream.result),
        "sha256": digest,
        "characters": characters,
    }


@verb("stream")
async def stream(_: Any, sandbox: Any, **arguments: Any) -> Any:
    return await _streamed(sandbox.stream(**arguments))


@verb("exec.stream")
async def exec_stream(_: Any, job: Any) -> Any:
    return await _streamed(job.stream())


@verb("callbacks")
async def callbacks(_: Any, sandbox: Any, cmd: str) -> Any:
    heard: Dict[str, str] = {"stdout": "", "stderr": ""}

    def listen(name: str) -> Callable[[str], None]:
        def hear(text: str) -> None:
            heard[name] += text

        return hear

    code = await settle(sandbox.exec_stream(cmd, listen("stdout"), listen("stderr")))
    result = await settle(sandbox.exec(cmd, on_stdout=lambda _: None))
    assert (result.stdout, result.stderr, result.exit_code) == (
        heard["stdout"],
        heard["stderr"],
        code,
    )
    return {**heard, "exit_code": code}


@verb("run_code")
async def run_code(_: Any, sandbox: Any, heard: bool = False, **arguments: Any) -> Any:
    told: Dict[str, str] = {"stdout": "", "stderr": ""}
    if heard:
        arguments["on_stdout"] = lambda text: told.update(stdout=told["stdout"] + text)
        arguments["on_stderr"] = lambda text: told.update(stderr=told["stderr"] + text)
    execution = await settle(sandbox.run_code(**arguments))
    return {**_execution(execution), "heard": told}


@verb("first_run")
async def first_run(_: Any, sandbox: Any) -> Any:
    return _execution(sandbox.first_run())


@verb("context.run")
async def context_run(_: Any, context: Any, **arguments: Any) -> Any:
    return _execution(await settle(context.run_code(**arguments)))


@verb("contexts.run_in")
async def run_in(_: Any, sandbox: Any, id: str, code: str) -> Any:
    contexts = await settle(sandbox.contexts.list())
    return _execution(await settle(next(item for item in contexts if item.id == id).run_code(code)))


def _execution(execution: Any) -> Any:
    rich = execution.results[0] if execution.results else None
    data = {
        **plain(execution),
        "results": [result.data for result in execution.results],
        "text": execution.text,
    }
    return {**data, "html": rich and rich.html, "json": rich and rich.json}


@verb("follow_events")
async def follow_events(_: Any, sandbox: Any, until: str) -> Any:
    return plain(await first(sandbox.follow_events(), lambda event: event.type == until))


@verb("logs")
async def logs(_: Any, sandbox: Any) -> Any:
    return await each(sandbox.logs())


@verb("follow_logs")
async def follow_logs(_: Any, sandbox: Any, until: str) -> Any:
    return {"line": await first(sandbox.logs(follow=True), lambda line: line == until)}


@verb("until_port")
async def until_port(_: Any, sandbox: Any, port: int) -> Any:
    deadline = time.monotonic() + PORT_WITHIN
    while time.monotonic() < deadline:
        urls = await settle(sandbox.preview_urls())
        if port in urls:
            return {"url": urls[port]}
        await asyncio.sleep(0.2)
    raise AssertionError(f"nobody listens on {port}")


@verb("preview_url")
async def preview_url(_: Any, sandbox: Any, port: int) -> Any:
    return {"url": await settle(sandbox.preview_url(port))}


@verb("preview_get")
async def preview_get(_: Any, sandbox: Any, port: int, path: str) -> Any:
    preview = await settle(sandbox.preview(port))
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.get(preview.path_url + path)
    return {"status": answer.status_code, "text": answer.text}


@verb("terminal")
async def terminal(_: Any, sandbox: Any, lines: Any, resize: Any, more: Any, last: str, **options: Any) -> Any:
    seen = b""
    terminal = await entered(sandbox.terminal(**options))
    for line, answer in lines:
        await settle(terminal.write(line + "\n"))
        seen += await settle(terminal.read_until(answer, 60))
    await settle(terminal.resize(*resize))
    for line, answer in more:
        await settle(terminal.write(line + "\n"))
        seen += await settle(terminal.read_until(answer, 60))
    await settle(terminal.write(last + "\n"))
    seen += b"".join(await each(terminal))
    await left(terminal)
    return {"seen": seen.decode(), "exit_code": terminal.exit_code}


@verb("snapshot")
async def snapshot(_: Any, sandbox: Any, **given: Any) -> Any:
    return {"id": await settle(sandbox.snapshot(**given))}


simple("checkpoint", lambda sandbox, name: sandbox.checkpoint(name))
simple(
    "name_checkpoint",
    lambda sandbox, checkpoint, name: sandbox.name_checkpoint(checkpoint, name),
)
simple("checkpoints.list", lambda sandbox: sandbox.checkpoints.list())
simple("checkpoints.create", lambda sandbox, name: sandbox.checkpoints.create(name))
simple(
    "checkpoints.name",
    lambda sandbox, checkpoint, name: sandbox.checkpoints.name(checkpoint, name),
)
simple("diff", lambda sandbox, **arguments: sandbox.diff(**arguments))


@verb("timeline")
async def timeline(_: Any, sandbox: Any) -> Any:
    told = await settle(sandbox.timeline())
    return {"current": told.current, "checkpoints": [plain(item) for item in told]}


@verb("rewind")
async def rewind(_: Any, sandbox: Any, to: Any) -> Any:
    return {"was": await settle(sandbox.rewind(to))}


@verb("diff_patch")
async def diff_patch(_: Any, sandbox: Any, **arguments: Any) -> Any:
    return {"text": await settle(sandbox.diff_patch(**arguments))}


@verb("diff_tar")
async def diff_tar(_: Any, sandbox: Any, **arguments: Any) -> Any:
    return {"bytes": len(await settle(sandbox.diff_tar(**arguments)))}


@verb("context.fork")
async def fork_context(runner: Any, sandbox: Any, id: str, count: int) -> Any:
    return await settle(runner.context_class(sandbox, id).fork(count))


@verb("explore")
async def explore(_: Any, sandbox: Any, candidates: List[str]) -> Any:
    result = await settle(sandbox.explore(candidates))
    outcome = result.winner_outcome
    return {
        "winner": result.winner,
        "winner_label": outcome.label,
        "files_changed": outcome.files_changed,
        "reaped": result.reaped,
    }
