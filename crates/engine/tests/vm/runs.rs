//! Commands and scripts: output, exit codes, deadlines, stdin, signals, many at once.

use std::time::{Duration, Instant};

use sandling_engine::{Output, RunSpec};
use sandling_protocol::{ExitReason, Language, Program, Stdin, TerminalSize};

use crate::harness::{engine, python, run, shell};

#[tokio::test]
async fn a_script_runs_and_its_streams_and_exit_code_are_true() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let ran = python(&sandbox, "import sys\nprint(sum(range(101)))\nprint('é→', file=sys.stderr)\nsys.exit(7)").await;
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str(), ran.exit.code), ("5050\n", "é→\n", 7));
    assert_eq!(ran.exit.reason, ExitReason::Exited);
    let ran = shell(&sandbox, "echo out; echo err >&2; exit 3").await;
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str(), ran.exit.code), ("out\n", "err\n", 3));
    let ran = shell(&sandbox, "kill -SEGV $$").await;
    assert_eq!((ran.exit.code, ran.exit.signal, ran.exit.reason), (139, Some(11), ExitReason::Signalled));
    engine.close().await;
}

#[tokio::test]
async fn a_traceback_names_the_line_and_the_exit_code_is_one() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let ran = python(&sandbox, "def f():\n    return 1 / 0\nf()\n").await;
    assert_eq!(ran.exit.code, 1);
    assert!(ran.stderr.contains("ZeroDivisionError") && ran.stderr.contains("return 1 / 0"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("/run/sandling"), "frames of ours: {}", ran.stderr);
    engine.close().await;
}

#[tokio::test]
async fn argv_environment_directory_and_user_are_as_asked() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let words = ["/bin/sh", "-c", "echo \"$1|$GREETING|$(pwd)|$(id -un)|$HOME\"", "sh", "a b'c"];
    let spec = RunSpec {
        env: [("GREETING".to_owned(), "hé llo".to_owned())].into(),
        cwd: Some("/tmp".to_owned()),
        user: Some("user".to_owned()),
        ..RunSpec::new(Program::Argv(words.map(str::to_owned).to_vec()))
    };
    assert_eq!(run(&sandbox, spec).await.stdout, "a b'c|hé llo|/tmp|user|/home/user\n");
    let missing = RunSpec { cwd: Some("/no/such/place".to_owned()), ..RunSpec::shell("true") };
    let error = sandbox.run(missing).unwrap().collect().await.unwrap_err();
    assert!(crate::harness::chain(&error).contains("/no/such/place"), "{error:?}");
    engine.close().await;
}

#[tokio::test]
async fn a_deadline_kills_the_whole_group_and_keeps_what_was_printed() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let line = "echo before; sleep 1000 & sleep 1000";
    let started = Instant::now();
    let ran = run(&sandbox, RunSpec { timeout: Some(Duration::from_secs(1)), ..RunSpec::shell(line) }).await;
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
    assert_eq!((ran.stdout.as_str(), ran.exit.reason), ("before\n", ExitReason::Timeout));
    assert_eq!(shell(&sandbox, "pgrep -c sleep").await.stdout, "0\n");
    engine.close().await;
}

#[tokio::test]
async fn background_processes_survive_the_call_that_started_them() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let started = Instant::now();
    shell(&sandbox, "sleep 500 & echo started").await;
    assert!(started.elapsed() < Duration::from_secs(60));
    assert_eq!(shell(&sandbox, "pgrep -c sleep").await.stdout, "1\n");
    engine.close().await;
}

#[tokio::test]
async fn stdin_reaches_the_command_byte_for_byte() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let bytes: Vec<u8> = (0..1_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let execution = sandbox.run(RunSpec { stdin: Stdin::Open, ..RunSpec::shell("cat") }).unwrap();
    let (stdin, sent) = (execution.stdin(), bytes.clone());
    let sending = tokio::spawn(async move {
        stdin.send(&sent).await.unwrap();
        stdin.finish().unwrap();
    });
    let collected = execution.collect().await.unwrap();
    sending.await.unwrap();
    assert!(collected.stdout == bytes, "{} bytes came back of {}", collected.stdout.len(), bytes.len());
    engine.close().await;
}

#[tokio::test]
async fn many_commands_run_at_once_and_none_blocks_another() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    // One whose output nobody reads must not hold up the rest.
    let unread = sandbox.run(RunSpec::shell("yes | head -c 4000000")).unwrap();
    let mut all = tokio::task::JoinSet::new();
    for n in 0..20 {
        let sandbox = sandbox.clone();
        all.spawn(async move { shell(&sandbox, &format!("sleep 0.2; echo {n}")).await.stdout });
    }
    let mut outputs: Vec<u32> = all.join_all().await.iter().map(|text| text.trim().parse().unwrap()).collect();
    outputs.sort_unstable();
    assert_eq!(outputs, (0..20).collect::<Vec<_>>());
    assert_eq!(unread.collect().await.unwrap().stdout.len(), 4_000_000);
    engine.close().await;
}

#[tokio::test]
async fn a_command_is_listed_attached_to_again_and_signalled() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let spec = RunSpec { id: Some("mine".to_owned()), ..RunSpec::shell("echo one; sleep 600") };
    let mut first = sandbox.run(spec.clone()).unwrap();
    while !matches!(first.next().await.unwrap(), Output::Bytes { .. }) {}
    drop(first);
    let listed = sandbox.list_execs().await.unwrap();
    assert!(listed.iter().any(|exec| exec.id == "mine"), "{listed:?}");
    // The same id does not start twice: it attaches, and what was printed is there again.
    let mut again = sandbox.run(spec).unwrap();
    assert!(matches!(again.next().await.unwrap(), Output::Started { existing: true, .. }));
    sandbox.signal("mine", 15).await.unwrap();
    let collected = again.collect().await.unwrap();
    assert_eq!((collected.stdout.as_slice(), collected.exit.signal), (b"one\n".as_slice(), Some(15)));
    let after = sandbox.attach("mine", 2).unwrap().collect().await.unwrap();
    assert_eq!(after.stdout, b"e\n", "the result can be asked for afterwards, from any byte");
    engine.close().await;
}

#[tokio::test]
async fn a_terminal_is_a_terminal_and_can_be_resized() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let size = TerminalSize { rows: 30, cols: 90 };
    let line = "test -t 0 && test -t 1 && stty size; read -r; stty size";
    let spec = RunSpec { terminal: Some(size), stdin: Stdin::Open, ..RunSpec::shell(line) };
    let mut execution = sandbox.run(RunSpec { id: Some("tty".to_owned()), ..spec }).unwrap();
    let mut screen = String::new();
    while !screen.contains("30 90") {
        if let Output::Bytes { bytes, .. } = execution.next().await.unwrap() {
            screen.push_str(&String::from_utf8_lossy(&bytes));
        }
    }
    sandbox.resize("tty", TerminalSize { rows: 11, cols: 22 }).await.unwrap();
    execution.stdin().send(b"\n").await.unwrap();
    let rest = execution.collect().await.unwrap();
    assert!(String::from_utf8_lossy(&rest.stdout).contains("11 22"), "{:?}", rest.stdout);
    engine.close().await;
}

/// What readline does with each prompt, with the resize at the worst moment.
#[tokio::test]
async fn a_resize_that_a_prompt_undoes_is_made_again() {
    const PROMPT: &str = r#"exec python3 -c 'import fcntl, signal, struct, termios, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})
size = lambda: fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8))
before = size()
print("asked", flush=True)
signal.sigwait({signal.SIGWINCH})
fcntl.ioctl(0, termios.TIOCSWINSZ, before)
while struct.unpack("4H", size())[:2] != (11, 22):
    time.sleep(0.02)
print("kept")'"#;
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let size = TerminalSize { rows: 30, cols: 90 };
    let spec = RunSpec { terminal: Some(size), id: Some("tty".to_owned()), ..RunSpec::shell(PROMPT) };
    let mut execution = sandbox.run(RunSpec { timeout: Some(Duration::from_secs(60)), ..spec }).unwrap();
    let mut screen = String::new();
    while !screen.contains("asked") {
        if let Output::Bytes { bytes, .. } = execution.next().await.unwrap() {
            screen.push_str(&String::from_utf8_lossy(&bytes));
        }
    }
    sandbox.resize("tty", TerminalSize { rows: 11, cols: 22 }).await.unwrap();
    let rest = execution.collect().await.unwrap();
    assert!(String::from_utf8_lossy(&rest.stdout).contains("kept"), "{:?}", rest.stdout);
    engine.close().await;
}

#[tokio::test]
async fn zombies_are_reaped() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    shell(&sandbox, "for i in $(seq 30); do (sleep 0.05 &) ; done; sleep 0.5").await;
    assert_eq!(shell(&sandbox, "ps -eo stat= | grep -c '^Z'; true").await.stdout, "0\n");
    engine.close().await;
}

#[tokio::test]
async fn node_and_bash_scripts_run_as_python_ones_do() {
    let engine = engine().await;
    let sandbox = engine.sandbox_of("code-interpreter").await;
    let node = "console.log([1,2,3].map(x => x * 2).join(), process.argv.slice(2)); process.exitCode = 4";
    let ran = run(&sandbox, RunSpec::code(Language::Node, node)).await;
    assert_eq!((ran.stdout.as_str(), ran.exit.code), ("2,4,6 []\n", 4), "{}", ran.stderr);
    let ran = run(&sandbox, RunSpec::code(Language::Bash, "echo $((6 * 7)); exit 9")).await;
    assert_eq!((ran.stdout.as_str(), ran.exit.code), ("42\n", 9));
    let ran = python(&sandbox, "import time; t = time.perf_counter(); import pandas, numpy, scipy, matplotlib.pyplot\nprint(time.perf_counter() - t)").await;
    assert!(ran.stdout.trim().parse::<f64>().unwrap() < 0.5, "imports were not warm: {}", ran.stdout);
    engine.close().await;
}
