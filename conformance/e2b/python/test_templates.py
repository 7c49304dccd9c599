"""Templates built from code."""

import linecache
import os
import shutil

import pytest
from e2b import BuildException, Sandbox, Template, TemplateException, wait_for_file, wait_for_port
from e2b_code_interpreter import Sandbox as Interpreter
from support import wire
from support.waiting import until


def test_steps_run_in_a_machine_and_last(make, tmp_path, monkeypatch):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "main.py").write_text("print('main')")
    (tmp_path / "one.txt").write_text("one")
    (tmp_path / "several").mkdir()
    for name in ("a", "b"):
        (tmp_path / "several" / name).write_text(name)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "dangling").symlink_to("/no/such/file")
    template = (
        Template(file_context_path=tmp_path)
        .from_base_image()
        .set_envs({"MODE": "built"})
        .set_workdir("/home/user/work")
        .copy("app", "app")
        .copy("one.txt", "renamed.txt")
        .copy("links/*", "links/")
        .copy("several/*", "several")
        .run_cmd("echo said; python3 app/main.py >out; id -un >who")
        .run_cmd("touch /root-was-here", user="root")
        .set_start_cmd("touch /tmp/started; exec sleep 1000", wait_for_file("/tmp/started"))
    )
    lines = []
    built = Template.build(template, "conformance-built", on_build_logs=lambda entry: lines.append(entry.message))
    assert any("said" in line for line in lines)
    assert Template.exists("conformance-built") and not Template.exists("conformance-nothing")
    made = make("conformance-built")
    result = made.commands.run("pwd; cat out who renamed.txt; echo; echo $MODE; ls /root-was-here; pgrep -c sleep")
    assert result.stdout == "/home/user/work\nmain\nuser\none\nbuilt\n/root-was-here\n1\n"
    assert made.commands.run("readlink links/dangling; cat several/a several/b").stdout == "/no/such/file\nab"
    assert [tag.tag for tag in Template.get_tags("conformance-built")] == ["default"]
    assert listed().count("conformance-built") == 1
    shown = wire.send("GET", "/templates/conformance-built", wire.key()).json()
    assert (shown["buildID"], [build["buildID"] for build in shown["builds"]]) == (built.build_id, [built.build_id])
    assert built.template_id and Sandbox.delete_snapshot("conformance-built")
    assert "conformance-built" not in listed()


def listed():
    return [template["templateID"] for template in wire.send("GET", "/templates", wire.key()).json()]


def test_steps_may_be_another_users_and_say_when_they_are_ready(make):
    template = (
        Template()
        .from_debian_image("trixie")
        .run_cmd("git init --quiet r && cd r && git -c user.name=a -c user.email=a commit --allow-empty -m first")
        .git_clone("/home/user/r", "/home/user/clone")
        .set_user("root")
        .run_cmd("id -un >/who; touch /tmp/ready")
        .set_ready_cmd(wait_for_file("/tmp/ready"))
    )
    Template.build(template, "conformance-root")
    made = make("conformance-root")
    assert made.commands.run("cat /who; id -un").stdout == "root\nroot\n"
    assert made.commands.run("git -C /home/user/clone log --format=%s", user="user").stdout == "first\n"
    assert Sandbox.delete_snapshot("conformance-root")


def test_a_template_for_code_may_name_the_start_command_of_e2bs_image():
    template = (
        Template()
        .from_image("e2bdev/code-interpreter:latest")
        .run_cmd("echo data >/home/user/data.txt")
        .set_start_cmd("/root/.jupyter/start-up.sh", wait_for_port(49999))
    )
    Template.build(template, "conformance-code")
    with Interpreter.create("conformance-code", timeout=300) as made:
        assert made.run_code("open('/home/user/data.txt').read().strip()").text == "data"
    assert Sandbox.delete_snapshot("conformance-code")


def authorities():
    """The host's certificate authorities, because the registries of a test host may be a mirror."""
    return os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")


def test_a_build_reaches_the_registries_and_nothing_else(make, tmp_path):
    shutil.copy(authorities(), tmp_path / "authorities.pem")
    template = (
        Template(file_context_path=tmp_path)
        .from_base_image()
        .copy("authorities.pem", "/tmp/authorities.pem")
        .set_envs({"PIP_CERT": "/tmp/authorities.pem", "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
        .pip_install("six==1.16.0")
        .run_cmd("! curl --silent --max-time 30 http://example.com/")
    )
    Template.build(template, "conformance-six")
    made = make("conformance-six")
    assert made.commands.run("python3 -c 'import six; print(six.__version__)'").stdout == "1.16.0\n"
    # The sandboxes cannot reach what the build could reach.
    assert made.commands.run("curl --silent --max-time 30 https://pypi.org/ || echo no").stdout == "no\n"
    assert Sandbox.delete_snapshot("conformance-six")


@pytest.mark.timeout(600)
def test_packages_of_npm_are_there_afterwards(make, tmp_path):
    shutil.copy(authorities(), tmp_path / "authorities.pem")
    template = (
        Template(file_context_path=tmp_path)
        .from_template("code-interpreter-v1")
        .copy("authorities.pem", "/tmp/authorities.pem")
        .set_envs({"NODE_EXTRA_CA_CERTS": "/tmp/authorities.pem"})
        .npm_install("left-pad@1.3.0")
    )
    Template.build(template, "conformance-npm")
    assert make("conformance-npm").commands.run("node -p 'require(\"left-pad\")(7, 2, 0)'").stdout == "07\n"
    assert Sandbox.delete_snapshot("conformance-npm")


@pytest.mark.skipif("CONFORMANCE_NEWEST" not in os.environ, reason="takes a minute; the long run has it")
@pytest.mark.timeout(600)
def test_packages_of_debian_are_there_afterwards(make):
    Template.build(Template().from_base_image().apt_install("cowsay"), "conformance-apt")
    assert "moo" in make("conformance-apt").commands.run("/usr/games/cowsay moo").stdout
    assert Sandbox.delete_snapshot("conformance-apt")


def test_builds_run_behind_and_share_what_they_copy(make, tmp_path):
    (tmp_path / "shared.txt").write_text("shared")
    built = {}
    # The second one has no default tag.
    for name, tags in (("conformance-one", ["default", "v1"]), ("conformance-two", ["v1", "v2"])):
        template = Template(file_context_path=tmp_path).from_base_image().copy("shared.txt", "shared.txt")
        built[name] = Template.build_in_background(template, name, tags=tags), tags[0]
    for name, (info, kept) in built.items():
        status = until(f"the end of {name}", lambda: ended(Template.get_build_status(info)), seconds=150)
        assert status.status.value == "ready", [entry.message for entry in status.log_entries]
        assert Template.exists(name) and not Template.exists(f"{name}:none")
        assert all(tag.build_id == info.build_id for tag in Template.get_tags(name))
        extra = ({tag.tag for tag in Template.get_tags(name)} - {kept}).pop()
        assigned = Template.assign_tags(f"{name}:{extra}", ["stable", "team-2"])
        assert assigned.tags == ["stable", "team-2"] and Template.exists(f"{name}:stable")
        assert assigned.build_id == info.build_id
        assert listed().count(name) == 1 and not any(other.startswith("e2b-") for other in listed())
        Template.remove_tags(name, [extra, "team-2"])
        assert {tag.tag for tag in Template.get_tags(name)} == {kept, "stable"}
        assert make(f"{name}:stable").files.read("shared.txt") == "shared"
        with pytest.raises(TemplateException, match="default"):
            Template.remove_tags(name, ["default"])
        assert make(f"{name}:{kept}").files.read("shared.txt") == "shared"
        # Without a tag, all tags are deleted.
        assert Sandbox.delete_snapshot(name) and not Template.exists(name)
        assert Template.get_tags(name) == [] and name not in listed()


def ended(status):
    return status if status.status.value in ("ready", "error") else None


def test_a_step_that_fails_is_named():
    template = Template().from_template("base").run_cmd("echo why >&2; exit 4")
    with pytest.raises(BuildException, match="exit code 4"):
        Template.build(template, "conformance-broken")


TRACED = {
    "from_image": (lambda: Template().from_image("registry.invalid/none"), "cannot reach registry.invalid"),
    "set_user": (lambda: Template().from_template("base").set_user("; exit 1"), "; exit 1"),
    "set_start_cmd": (lambda: Template().from_template("base").set_start_cmd("exit 3", "sleep 60"), "exit code 3"),
}


@pytest.mark.parametrize("method", TRACED)
def test_a_build_that_fails_shows_the_line_of_its_author(method):
    make, why = TRACED[method]
    with pytest.raises(BuildException, match=why) as raised:
        Template.build(make(), "conformance-traced")
    lines = [linecache.getline(__file__, entry.lineno + 1) for entry in raised.traceback if str(entry.path) == __file__]
    assert any(f".{method}(" in line for line in lines), lines
