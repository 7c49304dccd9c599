use std::time::{Duration, Instant};

use sandling_protocol::{
    Event, ExecState, ExitReason, FailureKind, Language, OnLimit, Program, Request, Response, Stdin, ToGuest, WINDOW,
};

use crate::harness::{Agent, argv, children_of, is_alive, shell, skip, spec, wait_for};

#[test]
fn stdout_stderr_and_the_exit_code_are_separate() {
    let agent = Agent::start();
    let heard = agent.connect().shell("echo out; echo err >&2; exit 7");
    assert_eq!((heard.out().as_str(), heard.err().as_str()), ("out\n", "err\n"));
    let exit = heard.exit();
    assert_eq!((exit.code, exit.signal, exit.reason), (7, None, ExitReason::Exited));
    assert_eq!((exit.stdout_bytes, exit.stderr_bytes, exit.dropped_bytes), (4, 4, 0));
}

#[test]
fn any_bytes_come_through() {
    let agent = Agent::start();
    let heard = agent.connect().shell(r"printf '\000\001\377\n\000'");
    assert_eq!(heard.stdout, [0, 1, 255, 10, 0]);
}

#[test]
fn a_missing_program_and_a_missing_directory_are_different_failures() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let failure = host.run(argv(&["no-such-program-here"])).failure();
    assert_eq!(failure.kind, FailureKind::NotFound);
    assert!(failure.message.contains("no-such-program-here"), "{failure}");
    let mut nowhere = shell("true");
    nowhere.cwd = Some("/no/such/dir".to_owned());
    let failure = host.run(nowhere).failure();
    assert!(failure.message.contains("/no/such/dir"), "{failure}");
    let mut relative = shell("true");
    relative.cwd = Some("tmp".to_owned());
    assert_eq!(host.run(relative).failure().kind, FailureKind::Invalid);
}

#[test]
fn environment_directory_and_arguments_arrive() {
    let agent = Agent::start();
    let mut spec = argv(&["/bin/sh", "-c", "pwd; echo \"$A|$LANG|$1\"", "sh", "a b"]);
    spec.env.insert("A".to_owned(), "ä=x".to_owned());
    spec.cwd = Some("/usr".to_owned());
    assert_eq!(agent.connect().run(spec).out(), "/usr\nä=x|C.UTF-8|a b\n");
}

#[test]
fn bash_code_has_arguments_and_may_be_long() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let code = || spec(Program::Code { language: Language::Bash, args: vec!["x y".to_owned()] });
    let stream = host.open_with(Request::Run(code()), b"echo \"$0:$1\"");
    assert_eq!(host.end(stream).out(), "bash:x y\n");
    let long = format!("{}\necho \"$0:$1\"", "# x\n".repeat(100_000));
    let stream = host.open_with(Request::Run(code()), long.as_bytes());
    assert_eq!(host.end(stream).out(), "bash:x y\n");
}

#[test]
fn a_command_runs_as_another_user_with_all_groups() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let mut who = shell("id -u; id -g; id -G; echo $HOME $USER");
    who.user = Some("nobody".to_owned());
    let heard = host.run(who);
    if !is_root() {
        assert_eq!(heard.failure().kind, FailureKind::PermissionDenied);
        return skip("only root can run a command as another user");
    }
    assert_eq!(heard.out(), "65534\n65534\n65534\n/nonexistent nobody\n");
    let mut unknown = shell("true");
    unknown.user = Some("no-such-user".to_owned());
    assert_eq!(host.run(unknown).failure().kind, FailureKind::Invalid);
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

#[test]
fn stdin_is_streamed_with_credit_to_its_end() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let mut count = shell("wc -c");
    count.stdin = Stdin::Open;
    let stream = host.open(Request::Run(count));
    let block = vec![b'x'; 32 * 1024];
    let mut sent = 0;
    while sent < 4 << 20 {
        host.until(stream, |heard| sent + block.len() as u64 <= WINDOW as u64 + heard.credit);
        host.data(stream, &block);
        sent += block.len() as u64;
    }
    host.finish(stream);
    assert_eq!(host.end(stream).out().trim(), (4 << 20).to_string());
}

#[test]
fn a_command_that_closes_its_stdin_does_not_keep_the_agent_busy() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let mut deaf = shell("exec 0<&-; sleep 0.5");
    deaf.stdin = Stdin::Open;
    let before = cpu_ticks(agent.pid());
    let stream = host.open(Request::Run(deaf));
    host.data(stream, b"nobody reads this");
    host.end(stream).exit();
    assert!(cpu_ticks(agent.pid()) - before < 20, "the agent was busy");
}

/// The processor time of a process, in hundredths of a second.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let times: Vec<u64> =
        stat.rsplit(") ").next().unwrap().split(' ').skip(11).take(2).map(|t| t.parse().unwrap()).collect();
    times.iter().sum()
}

#[test]
fn a_host_that_overruns_its_window_loses_that_stream_only() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let mut sleeper = shell("sleep 60");
    sleeper.stdin = Stdin::Open;
    let id = sleeper.id.clone();
    let stream = host.open(Request::Run(sleeper));
    host.until(stream, |heard| heard.pid().is_some());
    host.data(stream, &vec![0; WINDOW + 1]);
    assert_eq!(host.end(stream).failure().kind, FailureKind::Invalid);
    assert_eq!(host.shell("echo still here").out(), "still here\n");
    assert!(matches!(host.ask(Request::Signal { exec: id, signal: 9 }).response(), Response::Done));
}

#[test]
fn a_deadline_kills_the_whole_group_and_keeps_the_output() {
    let agent = Agent::start();
    let mut endless = shell("echo before; sleep 1000 & echo $!; while :; do :; done");
    endless.timeout_ms = Some(2000);
    let started = Instant::now();
    let heard = agent.connect().run(endless);
    assert!(started.elapsed() < Duration::from_secs(60));
    let exit = heard.exit();
    assert_eq!((exit.code, exit.signal, exit.reason), (137, Some(9), ExitReason::Timeout));
    assert!(exit.duration_ms >= 2000);
    let out = heard.out();
    let (before, child) = out.trim().split_once('\n').unwrap();
    assert_eq!(before, "before");
    let child: u32 = child.parse().unwrap();
    wait_for(|| !is_alive(child));
}

#[test]
fn too_much_output_ends_the_command_and_reports_what_was_dropped() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let mut endless = shell("yes");
    endless.output_limit = 100_000;
    let heard = host.run(endless);
    let exit = heard.exit();
    assert_eq!(exit.reason, ExitReason::OutputLimit);
    assert_eq!(heard.stdout.len(), 100_000);
    assert!(exit.dropped_bytes > 0);
    assert_eq!(exit.stdout_bytes, 100_000 + exit.dropped_bytes);
    let mut exact = shell("head -c 1000 /dev/zero");
    exact.output_limit = 1000;
    assert_eq!(host.run(exact).exit().reason, ExitReason::Exited);
}

#[test]
fn a_tail_is_kept_while_the_command_keeps_running() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let mut long = shell("for i in $(seq 20000); do echo line $i; done");
    long.output_limit = 1000;
    long.on_limit = OnLimit::KeepTail;
    let id = long.id.clone();
    assert_eq!(host.run(long).exit().code, 0);
    let again = host.ask(Request::Attach { exec: id, from: 0 });
    assert_eq!(again.stdout.len(), 1000);
    assert!(again.out().ends_with("line 20000\n"));
    let dropped: u64 = again.events.iter().map(|e| if let Event::Dropped { bytes } = e { *bytes } else { 0 }).sum();
    assert_eq!(dropped + 1000, again.exit().stdout_bytes);
}

#[test]
fn large_output_is_complete_under_flow_control() {
    let agent = Agent::start();
    let mut big = shell("head -c 40000000 /dev/zero | tr '\\0' x");
    big.output_limit = 100 << 20;
    let heard = agent.connect().run(big);
    assert_eq!(heard.exit().dropped_bytes, 0);
    assert_eq!(heard.stdout.len(), 40_000_000);
}

#[test]
fn a_stream_without_credit_gets_no_more_than_its_window_and_blocks_no_other() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let mut big = shell("head -c 5000000 /dev/zero");
    big.output_limit = 100 << 20;
    let slow = host.open(Request::Run(big));
    while host.peek(slow).received() < WINDOW {
        host.listen();
    }
    assert_eq!(host.shell("echo quick").out(), "quick\n");
    assert_eq!(host.peek(slow).received(), WINDOW);
    host.pay(slow);
    assert_eq!(host.end(slow).stdout.len(), 5_000_000);
}

#[test]
fn a_background_process_neither_delays_the_end_nor_dies_with_the_command() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let mark = agent.path("mark");
    let ended = agent.path("ended");
    let wait_for_end = format!("until [ -e {ended} ]; do sleep 0.05; done");
    let command = shell(&format!("({wait_for_end}; echo late; touch {mark}; sleep 100) & echo now"));
    let id = command.id.clone();
    assert_eq!(host.run(command).out(), "now\n");
    std::fs::write(ended, "").unwrap();
    wait_for(|| std::path::Path::new(&mark).exists());
    // Output after the end is kept for streams that attach later.
    wait_for(|| host.ask(Request::Attach { exec: id.clone(), from: 0 }).out() == "now\nlate\n");
}

#[test]
fn a_command_may_start_its_own_session() {
    let agent = Agent::start();
    let mut host = agent.connect();
    // Without a fork: the output and the exit code are those of the program.
    for command in
        [shell("setsid sh -c 'sleep 0.2; echo hi; exit 3'"), argv(&["setsid", "sh", "-c", "echo hi; exit 3"])]
    {
        let heard = host.run(command);
        assert_eq!((heard.out().as_str(), heard.exit().code), ("hi\n", 3));
    }
    // With a fork, after which the command ends at once.
    for _ in 0..10 {
        assert_eq!(host.shell("setsid -f echo hi").out(), "hi\n");
        assert_eq!(host.shell("(echo out; echo err >&2) & exit 4").err(), "err\n");
    }
    let mut endless = shell("setsid sh -c 'sleep 1000 & echo $!; wait'");
    endless.timeout_ms = Some(2000);
    let heard = host.run(endless);
    assert_eq!(heard.exit().reason, ExitReason::Timeout);
    let child = heard.out().trim().parse().unwrap();
    wait_for(|| !is_alive(child));
}

#[test]
fn output_of_a_forgotten_commands_children_is_dropped() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let mark = agent.path("mark");
    let command = shell(&format!("(sleep 0.2; head -c 1000000 /dev/zero; touch {mark}) &"));
    let id = command.id.clone();
    host.run(command).exit();
    assert!(matches!(host.ask(Request::Forget { exec: id.clone() }).response(), Response::Done));
    assert_eq!(host.ask(Request::Attach { exec: id, from: 0 }).failure().kind, FailureKind::NotFound);
    wait_for(|| std::path::Path::new(&mark).exists());
}

#[test]
fn the_same_id_never_starts_twice() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let file = agent.path("count");
    let command = shell(&format!("echo x >> {file}; echo done"));
    host.run(command.clone()).exit();
    let again = host.run(command);
    assert_eq!(again.out(), "done\n");
    assert!(matches!(again.events[0], Event::Started { existing: true, .. }));
    assert_eq!(std::fs::read_to_string(file).unwrap(), "x\n");
}

#[test]
fn a_signal_reaches_the_group_and_is_reported() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let command = shell("sleep 1000 & echo $!; wait");
    let id = command.id.clone();
    let stream = host.open(Request::Run(command));
    let child: u32 = host.until(stream, |heard| !heard.stdout.is_empty()).out().trim().parse().unwrap();
    assert!(matches!(host.ask(Request::Signal { exec: id.clone(), signal: 15 }).response(), Response::Done));
    let exit = host.end(stream).exit();
    assert_eq!((exit.code, exit.signal, exit.reason), (143, Some(15), ExitReason::Signalled));
    wait_for(|| !is_alive(child));
    assert_eq!(host.ask(Request::Signal { exec: id.clone(), signal: 15 }).failure().kind, FailureKind::Invalid);
    assert_eq!(host.ask(Request::Signal { exec: id, signal: 0 }).failure().kind, FailureKind::Invalid);
    let missing = Request::Signal { exec: "nobody".to_owned(), signal: 15 };
    assert_eq!(host.ask(missing).failure().kind, FailureKind::NotFound);
}

#[test]
fn many_commands_run_at_once_and_are_listed() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let streams: Vec<_> = (0..50).map(|i| host.open(Request::Run(shell(&format!("read x; echo {i}"))))).collect();
    for (i, stream) in streams.into_iter().enumerate() {
        assert_eq!(host.end(stream).out(), format!("{i}\n"));
    }
    let mut waiting = shell("cat");
    waiting.stdin = Stdin::Open;
    let stream = host.open(Request::Run(waiting.clone()));
    host.until(stream, |heard| heard.pid().is_some());
    let Response::Execs { execs } = host.ask(Request::ListExecs).response() else { panic!() };
    assert_eq!(execs.len(), 51);
    let running: Vec<_> = execs.iter().filter(|exec| matches!(exec.state, ExecState::Running)).collect();
    assert_eq!((running.len(), running[0].id.as_str(), running[0].command.as_str()), (1, waiting.id.as_str(), "cat"));
    host.finish(stream);
    host.end(stream).exit();
}

#[test]
fn a_cancelled_stream_leaves_its_command_running() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let command = shell("echo one; sleep 0.3; echo two");
    let id = command.id.clone();
    let stream = host.open(Request::Run(command));
    host.until(stream, |heard| !heard.stdout.is_empty());
    host.say(&ToGuest::Cancel { stream }, b"");
    let heard = host.ask(Request::Attach { exec: id, from: 4 });
    assert_eq!((heard.out().as_str(), heard.exit().code), ("two\n", 0));
}

#[test]
fn orphans_and_zombies_are_reaped() {
    let agent = Agent::start();
    let mut host = agent.connect();
    host.shell("for i in 1 2 3 4 5; do (sleep 0.1 &) ; done").exit();
    wait_for(|| children_of(agent.pid()).is_empty());
}

#[test]
fn invalid_requests_fail_one_by_one() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let mut bad = shell("true");
    bad.id = "../x".to_owned();
    assert_eq!(host.run(bad).failure().kind, FailureKind::Invalid);
    assert_eq!(host.run(argv(&[])).failure().kind, FailureKind::Invalid);
    assert_eq!(host.run(argv(&["a\0b"])).failure().kind, FailureKind::Invalid);
    let mut bad = shell("true");
    bad.env.insert("A=B".to_owned(), String::new());
    assert_eq!(host.run(bad).failure().kind, FailureKind::Invalid);
    assert_eq!(host.shell("true").exit().code, 0);
}
