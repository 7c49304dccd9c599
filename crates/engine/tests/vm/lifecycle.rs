//! Creating, pausing, expiring, ending, and the limits a sandbox was given.

use std::time::{Duration, Instant};

use sandling_engine::{CreateSpec, EndReason, Engine, EngineConfig, RunSpec, State};

use crate::harness::{chain, config, engine, eventually, python, run, shell, spec};

#[tokio::test]
async fn the_boundary_says_what_holds_and_the_machine_is_as_asked() {
    let engine = engine().await;
    let wish =
        CreateSpec { memory_mib: Some(384), vcpus: Some(2), disk_mib: Some(6000), pids: Some(100), ..spec("base") };
    let sandbox = engine.engine.create(wish).await.unwrap_or_else(|error| panic!("{}", chain(&error)));
    let info = sandbox.info();
    assert_eq!((info.state, info.memory_mib, info.vcpus, info.disk_mib), (State::Running, 384, 2, 6000));
    let boundary = serde_json::to_value(&info.boundary).unwrap();
    for layer in [
        "user_namespace",
        "mount_namespace",
        "network_namespace",
        "pid_namespace",
        "ipc_namespace",
        "no_new_privs",
        "seccomp",
    ] {
        assert_eq!(boundary[layer], true, "{layer} in {boundary}");
    }
    let ran =
        shell(&sandbox, "nproc; awk '/MemTotal/ {print int($2/1024)}' /proc/meminfo; df -m --output=size / | tail -1")
            .await;
    let numbers: Vec<u32> = ran.stdout.lines().map(|line| line.trim().parse().unwrap()).collect();
    assert_eq!(numbers[0], 2);
    assert!((300..=384).contains(&numbers[1]), "{numbers:?}");
    assert!((5000..=6000).contains(&numbers[2]), "{numbers:?}");
    let forks = "import os, time\nn = 0\ntry:\n    while n < 300:\n        if os.fork() == 0:\n            time.sleep(60); os._exit(0)\n        n += 1\nexcept BlockingIOError: pass\nprint(n)";
    let forked: u32 = python(&sandbox, forks).await.stdout.trim().parse().unwrap();
    assert!((50..100).contains(&forked), "{forked} processes where 100 are allowed");
    engine.close().await;
}

#[tokio::test]
async fn a_paused_sandbox_does_nothing_until_it_is_resumed() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    sandbox.pause().await.unwrap();
    sandbox.pause().await.unwrap();
    assert_eq!(sandbox.info().state, State::Paused);
    assert!(sandbox.run(RunSpec::shell("true")).err().unwrap().to_string().contains("paused"));
    sandbox.resume().await.unwrap();
    assert_eq!(shell(&sandbox, "echo back").await.stdout, "back\n");
    engine.close().await;
}

#[tokio::test]
async fn a_sandbox_ends_when_its_time_is_over() {
    let engine = engine().await;
    let wish = CreateSpec { ttl: Some(Duration::from_secs(2)), ..spec("base") };
    let sandbox = engine.engine.create(wish).await.unwrap();
    let started = Instant::now();
    assert_eq!(sandbox.ended().await, EndReason::Ttl);
    assert!(started.elapsed() < Duration::from_secs(60));
    assert!(sandbox.run(RunSpec::shell("true")).is_err());
    let kinds: Vec<_> = engine
        .engine
        .events()
        .newest("default", Some(sandbox.id()), 10)
        .unwrap()
        .into_iter()
        .map(|event| event.kind)
        .collect();
    assert_eq!(kinds, ["created", "ended"]);
    engine.close().await;
}

#[tokio::test]
async fn a_sandbox_with_work_in_flight_is_not_idle() {
    let engine = engine().await;
    let wish = CreateSpec { idle: Some(Duration::from_secs(1)), ..spec("base") };
    let sandbox = engine.engine.create(wish).await.unwrap();
    assert_eq!(run(&sandbox, RunSpec::shell("sleep 3; echo done")).await.stdout, "done\n");
    assert_eq!(sandbox.ended().await, EndReason::Idle);
    engine.close().await;
}

#[tokio::test]
async fn one_sandbox_does_not_see_another() {
    let engine = engine().await;
    let (one, two) = (engine.sandbox().await, engine.sandbox().await);
    shell(&one, "echo secret > /root/mine; touch /tmp/mine").await;
    assert_eq!(shell(&two, "ls /root/mine /tmp/mine 2>/dev/null | wc -l").await.stdout, "0\n");
    engine.close().await;
}

#[tokio::test]
async fn twenty_at_once_all_answer_and_all_go() {
    let engine = engine().await;
    let mut making = tokio::task::JoinSet::new();
    for n in 0..20 {
        let engine = engine.engine.clone();
        making.spawn(async move {
            let sandbox = engine.create(spec("base")).await.unwrap_or_else(|error| panic!("{}", chain(&error)));
            let ran = shell(&sandbox, &format!("echo {n}")).await.stdout;
            sandbox.end(EndReason::Requested).await.unwrap();
            ran.trim().parse::<u32>().unwrap()
        });
    }
    let mut answers = making.join_all().await;
    answers.sort_unstable();
    assert_eq!(answers, (0..20).collect::<Vec<_>>());
    engine.close().await;
}

#[tokio::test]
async fn a_persistent_sandbox_that_nobody_uses_hibernates_and_any_other_does_not() {
    let home = tempfile::TempDir::new().unwrap();
    let wish = EngineConfig { hibernate_after: Some(Duration::from_secs(1)), ..config(&home) };
    let engine = Engine::open(wish).await.unwrap();
    let kept = engine.create(CreateSpec { persistent: true, ..spec("base") }).await.unwrap();
    let other = engine.create(spec("base")).await.unwrap();
    // One that works is not idle.
    assert_eq!(shell(&kept, "echo here > /root/file; sleep 2; cat /root/file").await.stdout, "here\n");
    eventually("it sleeps", || kept.hibernates()).await;
    kept.wake().await.unwrap();
    assert_eq!(shell(&kept, "cat /root/file").await.stdout, "here\n");
    eventually("it sleeps again", || kept.hibernates()).await;
    assert_eq!(other.info().state, State::Running);
    engine.close().await;
}
