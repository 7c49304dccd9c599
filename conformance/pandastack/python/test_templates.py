"""Templates and builds."""

import io
import tarfile
import uuid

import pandastack
import pytest

from support.wire import call


def test_the_list_names_the_templates_the_clients_use_by_default(client):
    found = {template.name: template for template in client.templates.list()}
    for name in ("base", "code-interpreter"):
        assert found[name].is_global is True
        assert found[name].cpu >= 1 and found[name].memory_mb >= 64
        assert found[name].size_bytes > 0
        assert found[name].description


def test_lists_are_bare_arrays_because_typescript_reads_no_other():
    for path in ("/v1/templates", "/v1/templates/builds"):
        answer = call("GET", path)
        assert answer.status == 200 and isinstance(answer.json(), list)


def test_no_path_of_the_host_is_shown():
    for template in call("GET", "/v1/templates").json():
        assert not str(template.get("rootfs_path") or "").startswith("/")


@pytest.mark.parametrize("alias", ["ubuntu-24.04", "python-data"])
def test_an_alias_can_be_looked_at(client, alias):
    assert client.templates.get(alias).cpu >= 1


def test_get_says_the_same_as_the_list(client):
    [listed] = [template for template in client.templates.list() if template.name == "base"]
    assert client.templates.get("base") == listed


@pytest.mark.parametrize("name", ["no-such-template", "..%2f..%2fetc%2fpasswd", "a" * 300])
def test_an_unknown_template_is_not_found(client, name):
    with pytest.raises((pandastack.NotFoundError, pandastack.BadRequestError)):
        client.templates.get(name)


def test_deleting_an_unknown_template_is_not_found(client):
    with pytest.raises(pandastack.NotFoundError):
        client.templates.delete("no-such-template")


def test_a_built_in_template_cannot_be_deleted_by_a_tenant(other_client):
    with pytest.raises(pandastack.BadRequestError):
        other_client.templates.delete("base")
    assert other_client.templates.get("base").name == "base"


def test_builds_are_listed_and_an_unknown_one_is_not_found(client):
    assert isinstance(client.templates.builds(), list)
    with pytest.raises(pandastack.NotFoundError):
        client.templates.get_build("no-such-build")
    with pytest.raises(pandastack.NotFoundError):
        list(client.templates.build_logs("no-such-build"))


def from_an_image(templates, name, _folder):
    return templates.register(name, "registry.invalid/none:1", size_mb=64, cpu=1, memory_mb=256)


def from_a_dockerfile(templates, name, _folder):
    return templates.build_from_dockerfile(name, "FROM registry.invalid/none\nRUN true\n", size_mb=64)


def from_a_dockerfile_with_context(templates, name, folder):
    (folder / "sub").mkdir()
    (folder / "sub" / "file.txt").write_text("zoë")
    dockerfile = "FROM registry.invalid/none\nCOPY sub /sub\n"
    return templates.build_from_dockerfile(name, dockerfile, context_dir=str(folder), size_mb=64)


def from_a_broken_rootfs(templates, name, folder):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("only-an-empty-file"))
    (folder / "rootfs.tar").write_bytes(content.getvalue()[:700])
    return templates.build(name, rootfs_tar=str(folder / "rootfs.tar"), size_mb=64, timeout_seconds=120)


@pytest.mark.parametrize("attempt", [
    from_an_image, from_a_dockerfile, from_a_dockerfile_with_context, from_a_broken_rootfs,
])
def test_a_build_that_cannot_succeed_says_so_and_leaves_no_template(client, tmp_path, attempt):
    name = f"conformance-{uuid.uuid4().hex[:8]}"
    with pytest.raises(pandastack.PandastackError):
        build = attempt(client.templates, name, tmp_path)
        # An accepted build must be listed, have a complete log, and fail.
        assert build.id in [known.id for known in client.templates.builds()]
        assert all(line != "end" for line in client.templates.build_logs(build.id))
        client.templates.wait_for_build(build.id, timeout_seconds=120)
    assert name not in [template.name for template in client.templates.list()]
    with pytest.raises(pandastack.BadRequestError):
        client.sandboxes.create(template=name).kill()


DOCKERFILE = """\
ARG VERSION=3.13
FROM python:${VERSION}-slim
ARG ONLY_HERE=yes
ENV MODE=built PATH=/opt/own:$PATH
WORKDIR /srv/app
COPY sub notes.txt ./
COPY --chown=user --chmod=755 tool /opt/own/tool
RUN echo said $ONLY_HERE && \\
    tool >out
RUN echo end
USER user
EXPOSE 8000
CMD ["sleep", "4321"]
"""


def test_a_dockerfile_becomes_a_template_whose_sandboxes_are_as_it_says(client, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file.txt").write_text("zoë")
    (tmp_path / "notes.txt").write_text("noted")
    (tmp_path / "tool").write_text("#!/bin/sh\nid -un\n")
    name = f"conformance-{uuid.uuid4().hex[:8]}"
    build = client.templates.build_from_dockerfile(name, DOCKERFILE, context_dir=str(tmp_path))
    lines = list(client.templates.build_logs(build.id))
    assert "said yes" in lines and any("Python 3.13" in line for line in lines), lines
    built = client.templates.wait_for_build(build.id, poll_interval=0.2)
    assert built.is_done and built.bytes > 0
    with client.sandboxes.create(template=name) as sandbox:
        said = sandbox.exec("pwd; cat file.txt notes.txt; echo; cat out; id -un; echo $MODE $ONLY_HERE; tool; pgrep -c sleep")
        assert said.stdout == "/srv/app\nzoënoted\nroot\nuser\nbuilt\nuser\n1\n", said
        with sandbox.fork() as copy:
            assert copy.exec("pwd; id -un").stdout == "/srv/app\nuser\n"
    with pytest.raises(pandastack.PandastackError, match="already"):
        client.templates.build_from_dockerfile(name, "FROM base")
    # A template can build on another one, or be an alias of it.
    on_top = client.templates.register(f"{name}-2", name)
    client.templates.wait_for_build(on_top.id, poll_interval=0.2)
    with client.sandboxes.create(template=f"{name}-2") as sandbox:
        assert sandbox.exec("tool; echo $MODE").stdout == "user\nbuilt\n"
    for template in (f"{name}-2", name):
        client.templates.delete(template)
    assert name not in [template.name for template in client.templates.list()]


def test_the_step_that_failed_is_named(client):
    name = f"conformance-{uuid.uuid4().hex[:8]}"
    build = client.templates.build_from_dockerfile(name, "FROM ubuntu:24.04\nENV A=1\nRUN echo why >&2; exit 4\n")
    with pytest.raises(pandastack.TemplateBuildError, match="step 2, RUN echo why.*exit code 4"):
        client.templates.wait_for_build(build.id, poll_interval=0.2)
    assert "why" in list(client.templates.build_logs(build.id))
    assert name not in [template.name for template in client.templates.list()]


def test_an_image_whose_registry_cannot_be_reached_is_refused(client):
    with pytest.raises(pandastack.PandastackError, match="cannot reach registry.invalid"):
        client.templates.build_from_dockerfile("conformance-never", "FROM registry.invalid/none\n")
    with pytest.raises(pandastack.BadRequestError, match="line 2 .*type=ssh"):
        client.templates.build_from_dockerfile("conformance-never", "FROM base\nRUN --mount=type=ssh true\n")
