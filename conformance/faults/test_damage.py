"""Damaged files: operations that need them fail with a clear error, and everything else continues."""

import json
import os
import sqlite3
from pathlib import Path

import pytest

from support.processes import is_alive, of_machine, of_machines, until

TEMPLATES = Path(os.environ.get("SANDLING_TEMPLATES", ""))


def files_of(template):
    """All files that a sandbox of a template needs, by kind."""
    image = TEMPLATES / "images" / json.loads((TEMPLATES / "names" / f"{template}.json").read_text())["image"]
    manifest = json.loads((image / "manifest.json").read_text())
    # The bake of the template's default size, for any accelerator.
    recipe = manifest["recipe"]
    size = f"-{recipe['vcpus']}c-{recipe['memory_mib']}m-"
    bakes = [path for path in (image / "baked").iterdir() if size in path.name]
    baked = max(bakes, key=lambda path: path.stat().st_mtime)
    files = {
        "its manifest": image / "manifest.json",
        "its root disk": TEMPLATES / "roots" / manifest["root"]["id"] / "root.img",
        "its memory": baked / "memory",
        "its device state": baked / "state",
        "its disk layer": baked / "disk.qcow2",
    }
    # Bakes of older versions do not record their size.
    if "overlay_bytes" in (baked / "baked.json").read_text():
        files["its empty disk"] = baked / "overlay.qcow2"
    return files


def truncated(file, place):
    """The first half of a file, without its holes."""
    copy = place / f"half-{file.name}"
    half = file.stat().st_size // 2
    with file.open("rb") as whole, copy.open("wb") as part:
        part.write(whole.read(min(half, 1 << 20)))
        part.truncate(half)
    return copy


def test_a_truncated_template_is_refused_and_the_others_go_on(place, mounts, serve):
    server, client = serve()
    running, other = client.create("base"), client.create("code-interpreter")
    for what, file in files_of("base").items():
        mounts.instead(file, truncated(file, place))
        refused = client.call("POST", "/v1/sandboxes", {"template": "base"})
        assert (refused.status, refused.code) == (409, "template_damaged"), f"{what}: {refused.body}"
        assert str(TEMPLATES) not in refused.json()["error"]
        client.call("GET", "/v1/templates").expect(200)
        mounts.undo()
    mounts.instead(file, truncated(file, place))
    assert client.run(running, "echo here") == "here\n"
    other_too = client.create("code-interpreter")
    mounts.undo()
    again = client.create("base")
    for sandbox in (running, other, other_too, again):
        client.delete(sandbox)


def change(server, statement, *values):
    with sqlite3.connect(server.home / "sandling.db") as store:
        changed = store.execute(statement, values).rowcount
    assert changed == 1, f"{changed} rows changed"


NO_TEXT = b'{"id": "\xff"}'


def test_sandboxes_whose_rows_cannot_be_read_are_kept_until_they_are_deleted(serve):
    server, client = serve()
    whole = client.create()
    damaged = {client.create(): detail for detail in ("{", "null", '{"id": 5}', "", NO_TEXT)}
    machines = set().union(*(of_machine(server.home / "sandboxes" / sandbox) for sandbox in damaged))
    server.kill()
    for sandbox, detail in damaged.items():
        change(server, "UPDATE sandboxes SET detail = CAST(? AS TEXT) WHERE id = ?", detail, sandbox)
    for _ in range(2):
        client, _ = server.start()
        assert client.run(whole, "echo here") == "here\n"
        assert client.living() == {whole, *damaged}
        for sandbox in damaged:
            assert client.call("GET", f"/v1/sandboxes/{sandbox}").expect(200).json()["status"] == "unreadable"
            client.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"cmd": "true"}).expect(409)
            assert sandbox in server.said(), "the log names it"
        assert server.directories() >= damaged.keys()
        assert all(map(is_alive, machines))
        server.kill()
    client, _ = server.start()
    for sandbox in damaged:
        client.delete(sandbox)
        client.call("GET", f"/v1/sandboxes/{sandbox}").expect(404)
        assert [event["type"] for event in client.events(sandbox)][-1] == "sandbox.ended"
    until("their directories are gone", lambda: not server.directories() & damaged.keys())
    until("their machines are gone", lambda: not any(map(is_alive, machines)))
    client.delete(whole)


DAMAGE = [
    ("events", "detail", "{", "/v1/events", "events"),
    ("tokens", "scope", "everything", "/v1/me/tokens", "items"),
    ("workspaces", "created_ms", 1 << 62, "/v1/workspaces", "items"),
]
# Invalid UTF-8 in a text column.
DAMAGE += [(table, column, NO_TEXT, path, items) for table, column, path, items in (
    ("events", "kind", "/v1/events", "events"),
    ("tokens", "name", "/v1/me/tokens", "items"),
    ("workspaces", "name", "/v1/workspaces", "items"),
)]


def test_damaged_rows_hide_nothing_but_themselves(serve):
    server, client = serve()
    for name in ("first", "second"):
        client.call("POST", "/v1/me/tokens", {"label": name}).expect(201)
        client.call("POST", "/v1/workspaces", {"name": name}).expect(201)
        client.delete(client.create())
    server.kill()
    for table, column, value, _, _ in DAMAGE:
        value_is = "CAST(? AS TEXT)" if isinstance(value, bytes) else "?"
        change(server, f"UPDATE {table} SET {column} = {value_is} WHERE rowid = (SELECT max(rowid) FROM {table})", value)
    client, _ = server.start()
    for _, _, _, path, items in DAMAGE:
        assert client.call("GET", path).expect(200).json()[items], path
    client.delete(client.create())


def test_a_store_that_is_no_store_is_an_error_that_names_it(serve):
    server, client = serve()
    server.stop()
    (server.home / "sandling.db").write_bytes(b"\x07" * 8192)
    for log in server.home.glob("sandling.db-*"):
        log.unlink()
    with pytest.raises(AssertionError, match="sandling.db"):
        server.start()


def test_a_machine_record_that_cannot_be_read_makes_its_sandbox_unreadable(serve):
    server, client = serve()
    damaged, whole = client.create(), client.create()
    record = server.home / "sandboxes" / damaged / "machine.json"
    processes = of_machines(server.home)
    server.kill()
    record.write_text("{")
    client, _ = server.start()
    assert client.run(whole, "echo here") == "here\n"
    assert client.call("GET", f"/v1/sandboxes/{damaged}").expect(200).json()["status"] == "unreadable"
    client.delete(damaged)
    client.call("GET", f"/v1/sandboxes/{damaged}").expect(404)
    client.delete(whole)
    server.stop()
    until("no machine is left", lambda: not any(map(is_alive, processes)))
    assert not server.directories()
