//! Code that does its worst: it is ended by its limits with a true reason, and nobody else notices.

use std::time::{Duration, Instant};

use sandling_engine::{EndReason, Output, RunError, RunSpec};
use sandling_protocol::frame::{MAX_FRAME, encode};
use sandling_protocol::{ExitReason, Language, Part, ToHost, generation};

use crate::harness::{engine, python, run, shell, spec};

fn within(seconds: u64, spec: RunSpec) -> RunSpec {
    RunSpec { timeout: Some(Duration::from_secs(seconds)), ..spec }
}

#[tokio::test]
async fn a_loop_ends_by_its_deadline() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let ran =
        run(&sandbox, within(5, RunSpec::code(Language::Python, "print('x', flush=True)\nwhile True: pass"))).await;
    assert_eq!((ran.exit.reason, ran.stdout.as_str()), (ExitReason::Timeout, "x\n"));
    assert_eq!(shell(&sandbox, "echo alive").await.stdout, "alive\n");
    engine.close().await;
}

#[tokio::test]
async fn endless_output_ends_by_its_limit_and_what_fits_is_there() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let spec = RunSpec { output_limit: 1_000_000, ..within(60, RunSpec::shell("yes")) };
    let ran = run(&sandbox, spec).await;
    assert_eq!(ran.exit.reason, ExitReason::OutputLimit);
    assert_eq!(ran.stdout.len(), 1_000_000);
    assert!(ran.exit.dropped_bytes > 0, "{:?}", ran.exit);
    assert_eq!(shell(&sandbox, "echo alive").await.stdout, "alive\n");
    engine.close().await;
}

#[tokio::test]
async fn a_fork_bomb_stays_within_its_pids_and_its_time() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let line = "echo begun; bomb() { bomb | bomb & }; bomb; sleep 100";
    let ran = run(&sandbox, within(3, RunSpec::shell(line))).await;
    assert_eq!((ran.exit.reason, ran.stdout.as_str()), (ExitReason::Timeout, "begun\n"));
    assert_eq!(shell(&sandbox, "echo alive").await.stdout, "alive\n");
    engine.close().await;
}

#[tokio::test]
async fn eating_all_memory_is_called_by_its_name() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let ran = run(&sandbox, within(120, RunSpec::code(Language::Python, "x = b'1' * (4 << 30)\nprint(len(x))"))).await;
    // Python may be refused the address space at once, or be killed when it touches it; a true reason either way.
    assert!(
        ran.exit.reason == ExitReason::OutOfMemory || ran.stderr.contains("MemoryError"),
        "{:?} {}",
        ran.exit,
        ran.stderr
    );
    let grow = "print('begun', flush=True)\nx = []\nwhile True: x.append(bytearray(8 << 20))";
    let ran = run(&sandbox, within(120, RunSpec::code(Language::Python, grow))).await;
    assert_eq!((ran.exit.reason, ran.stdout.as_str()), (ExitReason::OutOfMemory, "begun\n"), "{}", ran.stderr);
    assert_eq!(shell(&sandbox, "echo alive").await.stdout, "alive\n");
    engine.close().await;
}

#[tokio::test]
async fn a_full_disk_is_the_codes_own_problem() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let ran = run(&sandbox, within(300, RunSpec::shell("head -c 100G /dev/zero > /root/fill; echo $?"))).await;
    assert!(ran.stderr.contains("No space left"), "{} {}", ran.stdout, ran.stderr);
    assert_eq!(python(&sandbox, "print('alive')").await.stdout, "alive\n");
    engine.close().await;
}

#[tokio::test]
async fn killing_every_process_leaves_the_sandbox_usable() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    shell(&sandbox, "kill -9 -1").await;
    // What was killed takes a moment to be dead.
    assert_eq!(shell(&sandbox, "sleep 1; echo alive").await.stdout, "alive\n");
    assert_eq!(python(&sandbox, "print(1 + 1)").await.stdout, "2\n");
    engine.close().await;
}

#[tokio::test]
async fn a_kernel_panic_is_a_dead_guest_and_other_sandboxes_go_on() {
    let engine = engine().await;
    let (victim, witness) = (engine.sandbox().await, engine.sandbox().await);
    let line = "echo last; echo 1 > /proc/sys/kernel/sysrq; sync; echo c > /proc/sysrq-trigger";
    let started = Instant::now();
    let mut running = victim.run(within(60, RunSpec::shell(line))).unwrap();
    let mut printed = Vec::new();
    let error = loop {
        match running.next().await {
            Ok(Output::Bytes { bytes, .. }) => printed.extend(bytes),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error, RunError::GuestDied(_)), "{error:?}");
    assert_eq!(printed, b"last\n", "what it printed before is there");
    assert!(started.elapsed() < Duration::from_secs(60), "noticed after {:?}", started.elapsed());
    assert!(matches!(victim.ended().await, EndReason::GuestDied(_)));
    assert!(engine.engine.get(victim.id()).is_none());
    assert_eq!(shell(&witness, "echo alive").await.stdout, "alive\n");
    engine.close().await;
}

#[tokio::test]
async fn closing_the_control_channel_ends_that_sandbox_at_the_deadline() {
    let engine = engine().await;
    let (victim, witness) = (engine.sandbox().await, engine.sandbox().await);
    let line = "cd /sys/bus/virtio/drivers/virtio_console && for d in virtio*; do echo $d > unbind; done; sleep 600";
    let started = Instant::now();
    let ended = victim.run(within(3, RunSpec::shell(line))).unwrap().collect().await;
    let elapsed = started.elapsed();
    assert!(elapsed < Duration::from_secs(90), "{elapsed:?}");
    match ended {
        Ok(collected) => assert_eq!(collected.exit.reason, ExitReason::Timeout),
        Err(error) => assert!(matches!(error, RunError::GuestDied(_)), "{error:?}"),
    }
    assert!(matches!(victim.ended().await, EndReason::GuestDied(_)));
    assert_eq!(shell(&witness, "echo alive").await.stdout, "alive\n");
    engine.close().await;
}

/// Python that takes the agent's own end of the control channel, as root in a guest can, and writes into it.
fn write_to_control_channel(rubbish: &[u8], times: usize) -> RunSpec {
    let hex: String = rubbish.iter().map(|byte| format!("{byte:02x}")).collect();
    let code = format!(
        "import ctypes, os, select, time
def link(fd):
    try:
        return os.readlink(f'/proc/1/fd/{{fd}}')
    except FileNotFoundError:
        return ''  # closed since it was listed
port = next(int(fd) for fd in os.listdir('/proc/1/fd') if link(fd).startswith('/dev/vport'))
pidfd_getfd = 438
fd = ctypes.CDLL(None, use_errno=True).syscall(pidfd_getfd, os.pidfd_open(1), port, 0)
assert fd >= 0, os.strerror(ctypes.get_errno())
rubbish = bytes.fromhex('{hex}') * {times}
while rubbish:
    select.select([], [fd], [])
    rubbish = rubbish[os.write(fd, rubbish):]
time.sleep(600)"
    );
    within(60, RunSpec::code(Language::Python, code))
}

#[tokio::test]
async fn rubbish_on_the_control_channel_ends_that_sandbox_only() {
    let engine = engine().await;
    let witness = engine.sandbox().await;
    let greeting = encode(&ToHost::Hello { nonce: "mine".to_owned(), generation: generation::CURRENT }, &[]).unwrap();
    for (rubbish, times, violation) in [
        (&b"\0\x05abc\0"[..], 1, "cut short"),
        // Too long, or cut short where the agent itself says something in the middle of it.
        (b"endless", MAX_FRAME / 6, "frame"),
        (&greeting, 1, "greeting in the middle"),
    ] {
        let victim = engine.sandbox().await;
        let error = victim.run(write_to_control_channel(rubbish, times)).unwrap().collect().await.unwrap_err();
        assert!(matches!(error, RunError::GuestDied(_)), "{violation}: {error:?}");
        let ended = victim.ended().await;
        let EndReason::GuestDied(reason) = &ended else { panic!("{violation}: {ended:?}") };
        assert!(reason.contains("broke the protocol") && reason.contains(violation), "{violation}: {reason}");
        assert!(engine.engine.get(victim.id()).is_none());
    }
    assert_eq!(shell(&witness, "echo alive").await.stdout, "alive\n");
    engine.close().await;
}

#[tokio::test]
async fn a_guest_that_was_taken_over_cannot_flood_its_host() {
    let engine = engine().await;
    let (victim, witness) = (engine.sandbox().await, engine.sandbox().await);
    // Output that no command printed, on whatever stream is this command's: more than its limit, less than its window.
    let frame = |stream| encode(&ToHost::Data { stream, part: Part::Stdout, offset: 0 }, &[b'x'; 4096]).unwrap();
    let flood: Vec<u8> = (1..=8).flat_map(frame).collect();
    let spec = RunSpec { output_limit: 100_000, ..write_to_control_channel(&flood, 40) };
    let ended = victim.run(spec).unwrap().collect().await.map(|collected| collected.exit);
    assert!(matches!(&ended, Err(RunError::GuestDied(reason)) if reason.contains("more output")), "{ended:?}");
    assert!(matches!(victim.ended().await, EndReason::GuestDied(_)));
    assert_eq!(shell(&witness, "echo alive").await.stdout, "alive\n");
    engine.close().await;
}

#[tokio::test]
async fn there_is_no_network_unless_it_is_allowed() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let connect = |to: &str| format!("timeout 20 bash -c 'echo > /dev/tcp/{to}' 2>/dev/null; echo $?;");
    let line: String = ["10.0.2.2/80", "1.1.1.1/443", "169.254.169.254/80", "example.com/80"].map(connect).concat();
    let ran = shell(&sandbox, &line).await;
    assert_eq!(ran.stdout, "1\n1\n1\n1\n", "refused at once: {}", ran.stderr);
    engine.close().await;
}

#[tokio::test]
async fn a_wrong_wish_gets_a_sentence_and_makes_nothing() {
    let engine = engine().await;
    let error = engine.engine.create(spec("no-such-template")).await.err().unwrap();
    assert!(error.to_string().contains("no-such-template"), "{error}");
    for wish in [
        sandling_engine::CreateSpec { memory_mib: Some(1), ..spec("base") },
        sandling_engine::CreateSpec { vcpus: Some(1000), ..spec("base") },
        sandling_engine::CreateSpec { disk_mib: Some(1), ..spec("base") },
    ] {
        let error = engine.engine.create(wish).await.err().unwrap();
        assert!(error.to_string().contains("must be between"), "{error}");
    }
    engine.close().await;
}
