//! The `sandling` command without a server.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::SANDLING;
use crate::harness::templates;

struct Shell {
    home: TempDir,
}

impl Shell {
    fn new() -> Self {
        // A home that others can read would be repaired, with a warning.
        let home = tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap();
        Self { home }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(SANDLING);
        command.args(arguments).env("SANDLING_HOME", self.home.path()).env("SANDLING_TEMPLATES", templates());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn sandling(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn assert_nothing_left(&self) {
        let left = std::fs::read_dir(self.home.path().join("sandboxes")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "sandboxes left behind");
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn an_exported_template_runs_code_on_a_host_without_templates() {
    let here = Shell::new();
    let archive = here.home.path().join("base.tar.zst");
    let archive = archive.to_str().unwrap();
    let exported = here.sandling(&["template", "export", "base", archive]);
    assert!(exported.status.success(), "{}", text(&exported.stderr));
    let exported = text(&exported.stdout);
    let sha256 = exported.lines().last().unwrap();
    assert!(exported.starts_with("exported base with its bake") && sha256.starts_with("sha256 "), "{exported}");

    let there = Shell::new();
    let elsewhere = |arguments: &[&str]| there.command(arguments).env_remove("SANDLING_TEMPLATES").output().unwrap();
    let imported = elsewhere(&["template", "import", archive]);
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    let imported = text(&imported.stdout);
    assert!(imported.starts_with("imported base: ") && imported.contains(sha256), "{imported}");
    assert!(!imported.contains("no bake"), "{imported}");
    let ran = elsewhere(&["run", "-t", "base", "-c", "print(6 * 7)"]);
    assert_eq!((text(&ran.stdout), text(&ran.stderr), ran.status.code()), ("42\n".into(), "".into(), Some(0)));
    let again = elsewhere(&["template", "import", archive]);
    assert!(text(&again.stderr).contains("template `base` exists already; --replace"), "{}", text(&again.stderr));
    assert_eq!(again.status.code(), Some(2));
}

#[test]
fn run_forwards_output_and_exit_code() {
    let shell = Shell::new();
    let ran = shell.sandling(&[
        "run",
        "-t",
        "base",
        "-c",
        "import sys; print(sum(range(101))); print('e', file=sys.stderr); sys.exit(5)",
    ]);
    assert_eq!((text(&ran.stdout), text(&ran.stderr), ran.status.code()), ("5050\n".into(), "e\n".into(), Some(5)));
    let ran = shell.sandling(&[
        "run",
        "-t",
        "base",
        "--language",
        "bash",
        "-c",
        "echo \"$1-$2-$X\"",
        "--env",
        "X=y",
        "--",
        "a",
        "b c",
    ]);
    assert_eq!(text(&ran.stdout), "a-b c-y\n", "{}", text(&ran.stderr));
    shell.assert_nothing_left();
}

#[test]
fn the_default_template_has_pandas_and_node() {
    let shell = Shell::new();
    let ran = shell.sandling(&["run", "-c", "import pandas; print(pandas.Series([20, 22]).sum())"]);
    assert_eq!(text(&ran.stdout), "42\n", "{}", text(&ran.stderr));
    let ran = shell.sandling(&["run", "--language", "node", "-c", "console.log(6 * 7)"]);
    assert_eq!(text(&ran.stdout), "42\n", "{}", text(&ran.stderr));
    shell.assert_nothing_left();
}

#[test]
fn code_comes_from_a_file_or_stdin_and_stdin_can_be_data() {
    let shell = Shell::new();
    let file = shell.home.path().join("script.sh");
    std::fs::write(&file, "cat; echo \"args: $*\"").unwrap();
    let mut child =
        shell.command(&["run", "-t", "base", file.to_str().unwrap(), "--", "x"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"data\n").unwrap();
    assert_eq!(text(&child.wait_with_output().unwrap().stdout), "data\nargs: x\n");
    let mut child = shell.command(&["run", "-t", "base", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"print('from stdin')").unwrap();
    assert_eq!(text(&child.wait_with_output().unwrap().stdout), "from stdin\n");
    shell.assert_nothing_left();
}

#[test]
fn json_prints_one_object() {
    let shell = Shell::new();
    let code = "import socket; print('hi'); raise SystemExit(3)";
    let ran = shell.sandling(&["run", "-t", "base", "--json", "--scan", "-c", code]);
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(ran.status.code(), Some(3));
    assert_eq!(
        (&report["stdout"], &report["exit_code"], &report["reason"]),
        (&"hi\n".into(), &3.into(), &"exited".into())
    );
    assert_eq!(report["advice"][0]["risk"], "network");
    assert!(report["sandbox"]["boundary"]["accelerator"].is_string(), "{report}");
    shell.assert_nothing_left();
}

#[test]
fn limits_have_their_own_exit_codes_and_messages() {
    let shell = Shell::new();
    let ran =
        shell.sandling(&["run", "-t", "base", "--timeout", "5", "-c", "print('begun', flush=True)\nwhile True: pass"]);
    assert_eq!((ran.status.code(), text(&ran.stdout)), (Some(124), "begun\n".into()));
    assert!(text(&ran.stderr).contains("timeout"), "{}", text(&ran.stderr));
    let ran = shell.sandling(&["run", "-t", "base", "--output-limit", "1000", "-c", "while True: print('x' * 99)"]);
    assert_eq!((ran.status.code(), ran.stdout.len()), (Some(125), 1000));
    assert!(text(&ran.stderr).contains("output limit"), "{}", text(&ran.stderr));
    let panic = "echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger";
    let ran = shell.sandling(&["run", "-t", "base", "--language", "bash", "-c", panic]);
    assert_eq!(ran.status.code(), Some(70));
    assert!(text(&ran.stderr).contains("guest died"), "{}", text(&ran.stderr));
    shell.assert_nothing_left();
}

#[test]
fn ctrl_c_reaches_the_code() {
    let shell = Shell::new();
    // Short sleeps: Python does not notice an interrupt that arrives just before a long sleep until the sleep ends.
    let code = "import time\ntry:\n  print('up', flush=True)\n  while True: time.sleep(0.1)\nexcept KeyboardInterrupt: print('caught')";
    let mut child = shell.command(&["run", "-t", "base", "-c", code]).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0; 3];
    std::io::Read::read_exact(&mut stdout, &mut first).unwrap();
    // SAFETY: plain kill(2) of our own child.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let started = Instant::now();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut stdout, &mut rest).unwrap();
    assert_eq!((rest.as_str(), child.wait().unwrap().code()), ("caught\n", Some(0)));
    assert!(started.elapsed() < Duration::from_secs(60));
    shell.assert_nothing_left();
}

#[test]
fn invalid_requests_exit_with_2_and_a_message() {
    let shell = Shell::new();
    for arguments in [
        &["run", "--template", "nope", "-c", "1"][..],
        &["run", "-t", "base", "--memory", "1", "-c", "1"],
        &["run", "/no/such/file.py"],
        &["run"],
        &["run", "--timeout", "zero", "-c", "1"],
        &["template", "rm", "never-built"],
        &["template", "inspect", "../../etc"],
        &["--accelerator", "warp", "doctor"],
    ] {
        let ran = shell.sandling(arguments);
        assert_eq!(ran.status.code(), Some(2), "{arguments:?}: {}", text(&ran.stderr));
        assert!(!text(&ran.stderr).is_empty() && ran.stdout.is_empty(), "{arguments:?}");
        assert!(!text(&ran.stderr).contains("panicked"), "{arguments:?}: {}", text(&ran.stderr));
    }
    shell.assert_nothing_left();
}

#[test]
fn a_template_alias_prints_its_target() {
    let shell = Shell::new();
    let ran = shell.sandling(&["run", "--template", "ubuntu-24.04", "-c", "print('ran')"]);
    assert_eq!(text(&ran.stdout), "ran\n", "{}", text(&ran.stderr));
    assert!(text(&ran.stderr).contains("base"), "{}", text(&ran.stderr));
}

#[test]
fn doctor_reports_the_checks() {
    let shell = Shell::new();
    let ran = shell.sandling(&["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let names: Vec<_> =
        report["checks"].as_array().unwrap().iter().map(|check| check["name"].as_str().unwrap()).collect();
    for name in ["accelerator", "qemu", "seccomp", "home"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert_eq!(ran.status.code(), Some(0), "{report}");
    assert!(text(&shell.sandling(&["doctor"]).stdout).contains("accelerator"));
}

#[test]
fn completions_and_help_list_the_commands() {
    let shell = Shell::new();
    let completions = text(&shell.sandling(&["completions", "bash"]).stdout);
    for command in ["run", "create", "exec", "shell", "cp", "logs", "events", "ports", "pause", "rm", "token", "audit"]
    {
        assert!(completions.contains(&format!("__{command})")), "{command}");
    }
    let help = text(&shell.sandling(&["run", "--help"]).stdout);
    assert!(help.contains("--timeout") && help.contains("124"), "{help}");
}
