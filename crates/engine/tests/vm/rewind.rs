//! Checkpoints, the way back, and what changed in between.

use std::sync::Arc;

use sandling_engine::{
    Cause, CheckpointError, CreateSpec, Diff, DiffChange, DiffError, Engine, EngineConfig, FilePatch, ForkError,
    ForkSpec, Sandbox, SnapshotSpec, TimelineError,
};
use sandling_protocol::{ContextSpec, Language, WriteMode};

use crate::contexts::cell;
use crate::harness::{TestEngine, config, engine, shell, spec};

async fn checkpointed(engine: &Arc<Engine>, keep: u32) -> Arc<Sandbox> {
    engine.create(CreateSpec { checkpoints: Some(keep), ..spec("base") }).await.unwrap()
}

/// Runs a command as the API does: with a checkpoint before it.
async fn step(engine: &Arc<Engine>, sandbox: &Arc<Sandbox>, line: &str) -> String {
    engine.before(sandbox, Cause::Exec, line).await.unwrap();
    shell(sandbox, line).await.stdout
}

async fn numbers(engine: &Arc<Engine>, sandbox: &Arc<Sandbox>) -> Vec<u64> {
    engine.timeline(sandbox).await.checkpoints().iter().map(|one| one.number).collect()
}

#[tokio::test]
async fn a_rewind_brings_back_files_variables_and_processes_and_can_be_taken_back() {
    let TestEngine { engine, home } = engine().await;
    let sandbox = checkpointed(&engine, 20).await;
    let context =
        ContextSpec { id: "c".to_owned(), language: Language::Python, cwd: None, env: Default::default(), user: None };
    sandbox.create_context(context).await.unwrap();
    cell(&sandbox, "c", "x = 'first'").await;
    step(&engine, &sandbox, "echo one > /root/file; (while sleep 0.05; do echo tick; done) > /tmp/ticks &").await;
    let machine_id = shell(&sandbox, "cat /etc/machine-id").await.stdout;
    // The moment that is gone back to: number 2, before the damage.
    step(&engine, &sandbox, "echo two > /root/other; rm -rf /root/file /usr/bin").await;
    cell(&sandbox, "c", "x = 'second'").await;
    assert!(sandbox.stat("/usr/bin").await.is_err(), "the damage is done");

    // A fork of that moment is another sandbox, and this one keeps its damage.
    let at = |at: &str| ForkSpec { children: 1, at: Some(at.to_owned()), ..ForkSpec::default() };
    let fork = engine.fork(&sandbox, at("2")).await.unwrap().remove(0);
    assert_eq!((fork.receipt.checkpoint, fork.receipt.reseeded, fork.receipt.pause_ms), (Some(2), true, 0.0));
    let child = fork.sandbox;
    assert_eq!(shell(&child, "cat /root/file; ls /root/other").await.stdout, "one\n");
    assert_eq!(cell(&child, "c", "x").await.value, "'first'");
    assert_ne!(shell(&child, "cat /etc/machine-id").await.stdout, machine_id, "it is another sandbox");
    assert!(sandbox.stat("/usr/bin").await.is_err() && sandbox.stat("/root/other").await.is_ok());
    assert_eq!(cell(&sandbox, "c", "x").await.value, "'second'");
    let unknown = engine.fork(&sandbox, at("99")).await.err();
    assert!(matches!(unknown, Some(ForkError::Checkpoint(TimelineError::Unknown(_)))), "{unknown:?}");

    let rewound = engine.rewind(&sandbox, "2").await.unwrap();
    assert_eq!((rewound.to.number, rewound.was), (2, Some(3)));
    let look = "cat /root/file; ls /root/other; a=$(wc -l < /tmp/ticks); sleep 1; b=$(wc -l < /tmp/ticks); \
        [ $b -gt $a ] && echo ticks";
    assert_eq!(shell(&sandbox, look).await.stdout, "one\nticks\n");
    assert_eq!(cell(&sandbox, "c", "x").await.value, "'first'");
    assert_eq!(shell(&sandbox, "cat /etc/machine-id").await.stdout, machine_id, "it is the same sandbox");

    // What was left is still there, to go on with.
    let forward = engine.rewind(&sandbox, "3").await.unwrap();
    assert_eq!(forward.to.cause, Cause::Rewind);
    assert_eq!(cell(&sandbox, "c", "open('/root/other').read() + x").await.value, "'two\\nsecond'");
    let timeline = engine.timeline(&sandbox).await;
    let past: Vec<_> = timeline.checkpoints().iter().map(|one| (one.number, one.after)).collect();
    assert_eq!(past, [(1, None), (2, Some(1)), (3, Some(2)), (4, Some(2))]);
    let unknown = engine.rewind(&sandbox, "99").await;
    assert!(matches!(unknown, Err(CheckpointError::Timeline(TimelineError::Unknown(_)))));

    // The fork's snapshot outlives the timeline that it came from.
    sandbox.end(sandling_engine::EndReason::Requested).await.unwrap();
    child.hibernate().await.unwrap();
    child.wake().await.unwrap();
    assert_eq!(cell(&child, "c", "open('/root/file').read() + x").await.value, "'one\\nfirst'");
    child.end(sandling_engine::EndReason::Requested).await.unwrap();
    let left: Vec<_> = std::fs::read_dir(home.path().join("snapshots")).unwrap().flatten().collect();
    assert!(left.is_empty(), "nobody stands on {left:?}");
    engine.close().await;
}

#[tokio::test]
async fn the_oldest_checkpoints_go_with_their_files_and_named_ones_stay() {
    let TestEngine { engine, home } = engine().await;
    let sandbox = checkpointed(&engine, 3).await;
    engine.checkpoint(&sandbox, Some("start".to_owned())).await.unwrap();
    for number in 0..16 {
        step(&engine, &sandbox, &format!("echo {number} >> /root/file")).await;
    }
    assert_eq!(numbers(&engine, &sandbox).await, [1, 15, 16, 17]);
    let gone = ForkSpec { children: 1, at: Some("2".to_owned()), ..ForkSpec::default() };
    let gone = engine.fork(&sandbox, gone).await.err();
    assert!(matches!(gone, Some(ForkError::Checkpoint(TimelineError::Pruned { number: 2, .. }))), "{gone:?}");
    engine.rewind(&sandbox, "start").await.unwrap();
    assert_eq!(shell(&sandbox, "ls /root/file").await.exit.code, 2);
    assert_eq!(numbers(&engine, &sandbox).await, [1, 16, 17, 18]);
    engine.rewind(&sandbox, "18").await.unwrap();
    assert_eq!(shell(&sandbox, "wc -l < /root/file").await.stdout, "16\n");
    engine.name_checkpoint(&sandbox, "17", Some("end".to_owned())).await.unwrap();
    let taken = engine.name_checkpoint(&sandbox, "18", Some("end".to_owned())).await;
    assert!(matches!(taken, Err(CheckpointError::Timeline(TimelineError::NameTaken))));
    sandbox.end(sandling_engine::EndReason::Requested).await.unwrap();
    let left: Vec<_> = std::fs::read_dir(home.path().join("snapshots")).unwrap().flatten().collect();
    assert!(left.is_empty(), "nobody stands on {left:?}");
    engine.close().await;
}

#[tokio::test]
async fn a_disk_that_was_saved_many_times_is_folded() {
    let TestEngine { engine, home: _home } = engine().await;
    let sandbox = checkpointed(&engine, 2).await;
    shell(&sandbox, "head -c 2000000 /dev/urandom > /root/data; sync; sha256sum /root/data > /root/sum").await;
    // More than the layers after which a disk is folded.
    for number in 0..30 {
        step(&engine, &sandbox, &format!("echo {number} >> /root/file; sync")).await;
        engine.timeline(&sandbox).await;
    }
    let layers = sandbox.info().standing.disk.len();
    assert!(layers < 20, "the disk stands on {layers} layers");
    let look = "cd /root && sha256sum -c sum && wc -l < file";
    assert_eq!(shell(&sandbox, look).await.stdout, "/root/data: OK\n30\n");
    // What was saved after the folding stands on what was folded.
    engine.rewind(&sandbox, "30").await.unwrap();
    shell(&sandbox, "echo 3 > /proc/sys/vm/drop_caches").await;
    assert_eq!(shell(&sandbox, look).await.stdout, "/root/data: OK\n29\n");
    engine.close().await;
}

#[tokio::test]
async fn a_timeline_outlives_the_engine_and_hibernation() {
    let home = tempfile::TempDir::new().unwrap();
    let config = EngineConfig { takeover: true, ..config(&home) };
    let first = Engine::open(config.clone()).await.unwrap();
    let spec = CreateSpec { persistent: true, checkpoints: Some(5), ..spec("base") };
    let sandbox = first.create(spec).await.unwrap();
    let id = sandbox.id().clone();
    step(&first, &sandbox, "echo one > /root/file").await;
    step(&first, &sandbox, "echo two > /root/file").await;
    first.detach().await;
    drop((sandbox, first));

    let second = Engine::open(config).await.unwrap();
    second.settled().await;
    let sandbox = second.get(&id).expect("it is still there");
    assert_eq!(numbers(&second, &sandbox).await, [1, 2]);
    // It sleeps; the rewind keeps what it was put to sleep as.
    let rewound = second.rewind(&sandbox, "2").await.unwrap();
    assert_eq!(shell(&sandbox, "cat /root/file").await.stdout, "one\n");
    second.rewind(&sandbox, &rewound.was.unwrap().to_string()).await.unwrap();
    assert_eq!(shell(&sandbox, "cat /root/file").await.stdout, "two\n");
    second.close().await;
}

async fn diff(engine: &Arc<Engine>, own: &Arc<Sandbox>, from: &str, to: &str, path: &str) -> Result<Diff, DiffError> {
    let from = engine.point("default", Some(own), from).await?;
    let to = engine.point("default", Some(own), to).await?;
    engine.diff(&from, &to, path).await
}

fn told(diff: &Diff) -> Vec<(&str, DiffChange)> {
    diff.changes().iter().map(|change| (change.path.as_str(), change.change())).collect()
}

const PREPARE: &str = "mkdir -p /root/work/old; cd /root/work; printf 'a\\nb\\nc\\n' > text; echo x > gone; \
    echo same > touched; head -c 3000 /dev/urandom > noise; echo echo > script; echo y > old/file; ln -s text link";
const CHANGE: &str = "cd /root/work; printf 'a\\nB\\nc\\n' > text; rm -r gone old; touch touched; echo z >> noise; \
    chmod +x script; mkdir 'new dir'; echo new > 'new dir/ä'; ln -sfn script link; rm /etc/motd; mkfifo pipe";

#[tokio::test]
async fn a_diff_tells_what_changed_and_can_be_taken_home() {
    use DiffChange::{Added, Changed, Removed};
    let engine = engine().await;
    let (engine, sandbox) = (engine.engine.clone(), checkpointed(&engine.engine, 20).await);
    step(&engine, &sandbox, PREPARE).await;
    step(&engine, &sandbox, CHANGE).await;
    let changed = diff(&engine, &sandbox, "2", "now", "/root/work").await.unwrap();
    let expected = [
        ("gone", Removed),
        ("link", Changed),
        ("new dir", Added),
        ("new dir/ä", Added),
        ("noise", Changed),
        ("old", Removed),
        ("old/file", Removed),
        ("pipe", Added),
        ("script", Changed),
        ("text", Changed),
    ];
    assert_eq!(told(&changed), expected);
    let texts = changed.texts(1 << 20).await.unwrap();
    let FilePatch::Text(text) = &texts[9] else { panic!("{texts:?}") };
    assert!(text.ends_with("@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"), "{text}");

    // The whole machine: the same, and what lies elsewhere.
    let all = diff(&engine, &sandbox, "2", "now", "/").await.unwrap();
    assert!(told(&all).contains(&("etc/motd", Removed)), "{:?}", told(&all));
    assert!(
        !told(&all).iter().any(|(path, _)| path.starts_with("proc/") || path.starts_with("usr/")),
        "{:?}",
        told(&all)
    );

    // A patch, taken home: git makes of the old what is there now.
    let patch = changed.patch().await.unwrap();
    assert!(patch.starts_with("# left out (special): pipe\n"), "{patch}");
    let mut tar = changed.into_tar();
    let mut bytes = Vec::new();
    while let Some(more) = tar.next().await.unwrap() {
        bytes.extend(more);
    }
    drop(tar);
    let home = tempfile::tempdir().unwrap();
    copy_home(&engine, &sandbox, home.path()).await;
    let patched = home.path().join("was");
    std::fs::write(home.path().join("diff"), &patch).unwrap();
    let git = std::process::Command::new("git").args(["apply", "../diff"]).current_dir(&patched).status().unwrap();
    assert!(git.success(), "{patch}");
    assert_eq!(std::fs::read_to_string(patched.join("new dir/ä")).unwrap(), "new\n");
    assert_eq!(std::fs::read_link(patched.join("link")).unwrap(), std::path::Path::new("script"));
    assert!(!patched.join("gone").exists() && std::fs::read(patched.join("noise")).unwrap().ends_with(b"z\n"));

    // And the tar.
    std::fs::write(home.path().join("tar"), bytes).unwrap();
    let unpacked = home.path().join("unpacked");
    std::fs::create_dir(&unpacked).unwrap();
    let program = std::process::Command::new("tar").args(["-xf", "../tar"]).current_dir(&unpacked).status().unwrap();
    assert!(program.success());
    assert_eq!(std::fs::read_to_string(unpacked.join("text")).unwrap(), "a\nB\nc\n");
    assert_eq!(std::fs::read_to_string(unpacked.join("new dir/ä")).unwrap(), "new\n");
    assert!(!unpacked.join("touched").exists(), "it was touched, and is the same");
    engine.close().await;
}

/// The directory as it was at checkpoint 2, by a fork of a rewind: the slow way round.
async fn copy_home(engine: &Arc<Engine>, sandbox: &Arc<Sandbox>, home: &std::path::Path) {
    engine.rewind(sandbox, "2").await.unwrap();
    let packed = shell(sandbox, "tar -C /root/work -cf - . | base64 -w0").await.stdout;
    let was = home.join("was");
    std::fs::create_dir(&was).unwrap();
    let line = "base64 -d | tar -xf -";
    let mut unpack = std::process::Command::new("sh")
        .args(["-c", line])
        .current_dir(&was)
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut unpack.stdin.take().unwrap(), packed.as_bytes()).unwrap();
    assert!(unpack.wait().unwrap().success());
    engine.rewind(sandbox, "3").await.unwrap();
}

#[tokio::test]
async fn a_parent_and_its_fork_can_be_compared_and_strangers_cannot() {
    let engine = engine().await;
    let (engine, parent) = (engine.engine.clone(), engine.sandbox().await);
    shell(&parent, "echo parent > /root/file").await;
    let child = engine.fork(&parent, ForkSpec { children: 1, ..ForkSpec::default() }).await.unwrap().remove(0).sandbox;
    let mut upload = child.write_file("/root/new", WriteMode::Replace, None, None).unwrap();
    upload.send(b"child\n").await.unwrap();
    upload.finish().await.unwrap();
    shell(&parent, "echo more >> /root/file").await;
    let changed = diff(&engine, &parent, "now", child.id().as_str(), "/root").await.unwrap();
    assert_eq!(told(&changed), [("file", DiffChange::Changed), ("new", DiffChange::Added)]);
    drop(changed);

    // A sleeper is looked at, and sleeps on.
    child.hibernate().await.unwrap();
    let (snapshot, _) = engine.snapshot(&parent, SnapshotSpec::default()).await.unwrap();
    let slept = diff(&engine, &parent, snapshot.id.as_str(), child.id().as_str(), "/root/").await.unwrap();
    assert_eq!(told(&slept).len(), 2);
    assert!(child.hibernates());
    for (from, to, path) in
        [("nonsense", "now", "/"), ("now", "7", "/"), ("now", "now", "/../etc"), ("now", "now", "x")]
    {
        assert!(diff(&engine, &parent, from, to, path).await.is_err(), "{from} {to} {path}");
    }
    drop(slept);
    engine.close().await;
}
