"""Templates that are built from code."""

import os
import shutil

import pytest
from e2b import BuildException, Sandbox, Template, wait_for_file


def test_steps_run_in_a_machine_and_last(make, tmp_path, monkeypatch):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "main.py").write_text("print('main')")
    (tmp_path / "one.txt").write_text("one")
    template = (
        Template(file_context_path=tmp_path)
        .from_base_image()
        .set_envs({"MODE": "built"})
        .set_workdir("/home/user/work")
        .copy("app", "app")
        .copy("one.txt", "renamed.txt")
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
    assert [tag.tag for tag in Template.get_tags("conformance-built")] == ["default"]
    assert built.template_id and Sandbox.delete_snapshot("conformance-built")


def test_a_build_reaches_the_registries_and_nothing_else(make, tmp_path):
    # Whom the host trusts, its guests may trust: a test machine's registries may be a mirror.
    bundle = os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")
    shutil.copy(bundle, tmp_path / "authorities.pem")
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
    # What the build could reach, its sandboxes cannot.
    assert made.commands.run("curl --silent --max-time 30 https://pypi.org/ || echo no").stdout == "no\n"
    assert Sandbox.delete_snapshot("conformance-six")


def test_a_step_that_fails_is_named():
    template = Template().from_template("base").run_cmd("echo why >&2; exit 4")
    with pytest.raises(BuildException, match="exit code 4"):
        Template.build(template, "conformance-broken")


def test_an_image_that_cannot_be_had_is_refused():
    with pytest.raises(BuildException, match="cannot be had"):
        Template.build(Template().from_python_image("3.12"), "conformance-image")
