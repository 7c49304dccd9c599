use std::io::Write;

use sandling_protocol::{ExecState, FailureKind, Identity, Request, Response, Stdin, ToGuest, frame, generation};

use crate::harness::{Agent, shell};

#[test]
fn a_command_outlives_its_session_and_the_next_one_gets_its_output() {
    let agent = Agent::start();
    let mut first = agent.connect();
    let command = shell("echo one; sleep 0.3; echo two");
    let exec = command.id.clone();
    let stream = first.open(Request::Run(command));
    first.until(stream, |heard| !heard.stdout.is_empty());
    drop(first);
    let mut second = agent.connect();
    let heard = second.ask(Request::Attach { exec, from: 0 });
    assert_eq!((heard.out().as_str(), heard.exit().code), ("one\ntwo\n", 0));
}

#[test]
fn a_greeting_drops_earlier_streams_and_their_numbers_can_be_used_again() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let mut endless = shell("while :; do echo x; sleep 0.01; done");
    endless.output_limit = u64::MAX;
    let exec = endless.id.clone();
    let stream = host.open(Request::Run(endless));
    host.until(stream, |heard| !heard.stdout.is_empty());
    host.greet("again");
    // The harness fails on messages for a stream that this session has not opened.
    assert_eq!(host.shell("echo fresh").out(), "fresh\n");
    let Response::Execs { execs } = host.ask(Request::ListExecs).response() else { panic!() };
    assert!(execs.iter().any(|found| found.id == exec && matches!(found.state, ExecState::Running)));
    host.ask(Request::Signal { exec, signal: 9 }).response();
}

#[test]
fn a_session_can_follow_one_that_was_cut_in_the_middle_of_a_frame() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let open = ToGuest::Open { stream: 1, request: Request::ListExecs };
    let bytes = frame::encode(&open, b"").unwrap();
    for cut in [1, 3, bytes.len() / 2, bytes.len() - 1] {
        host.stream.write_all(&bytes[..cut]).unwrap();
        host.greet(&format!("after {cut}"));
        assert_eq!(host.shell("echo whole").out(), "whole\n");
    }
}

#[test]
fn a_host_of_the_first_generation_is_served_in_it() {
    let agent = Agent::start();
    let mut host = agent.connect();
    host.greet_as(1, "old");
    assert_eq!(host.generation, 1);
    assert_eq!(host.shell("echo served").out(), "served\n");
    host.greet_as(generation::CURRENT + 1, "new");
    assert_eq!(host.generation, generation::CURRENT);
}

#[test]
fn an_unknown_request_is_answered() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let failure = host.ask(Request::Unknown).failure();
    assert_eq!(failure.kind, FailureKind::Unsupported);
}

#[test]
fn the_agent_survives_garbage_on_the_channel() {
    let agent = Agent::start();
    let mut host = agent.connect();
    for seed in 0..200u32 {
        let rubbish: Vec<u8> = (0..997).map(|i| (seed.wrapping_mul(31).wrapping_add(i * i) >> 3) as u8).collect();
        host.stream.write_all(&rubbish).unwrap();
    }
    host.stream.write_all(&vec![7; 5 << 20]).unwrap();
    host.greet("still there");
    assert_eq!(host.shell("echo alive").out(), "alive\n");
}

#[test]
fn stdin_left_by_one_session_is_finished_by_the_next() {
    let agent = Agent::start();
    let mut first = agent.connect();
    let mut cat = shell("cat");
    cat.stdin = Stdin::Open;
    let exec = cat.id.clone();
    let stream = first.open(Request::Run(cat));
    first.data(stream, b"one ");
    first.until(stream, |heard| !heard.stdout.is_empty());
    drop(first);
    let mut second = agent.connect();
    let stream = second.open(Request::Attach { exec, from: 0 });
    second.data(stream, b"two");
    second.finish(stream);
    assert_eq!(second.end(stream).out(), "one two");
}

#[test]
fn every_command_gets_the_sandboxs_environment() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let identity = |entropy: &str| Identity {
        unix_nanos: 0,
        entropy: entropy.to_owned(),
        hostname: "box".to_owned(),
        machine_id: "0".repeat(32),
        boot_id: "00000000-0000-0000-0000-000000000000".to_owned(),
        env: Some([("SANDBOX".to_owned(), "mine".to_owned())].into()),
        limits: Default::default(),
    };
    host.ask(Request::Identify(identity("short"))).failure();
    let Response::Identified(proof) = host.ask(Request::Identify(identity(&"ab".repeat(32)))).response() else {
        panic!()
    };
    // In a test, the agent must not have changed the machine.
    assert!(!proof.kernel_reseeded && proof.hostname != "box" && proof.unix_nanos > 1);
    assert_eq!(host.shell("echo $SANDBOX").out(), "mine\n");
}

#[test]
fn usage_and_sync_are_answered() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let Response::Usage(usage) = host.ask(Request::Usage).response() else { panic!() };
    assert!(usage.memory_total_bytes > 0 && usage.disk_total_bytes > 0 && usage.processes > 0);
    assert!(matches!(host.ask(Request::Sync).response(), Response::Done));
}
