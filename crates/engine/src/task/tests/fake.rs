//! Machines without QEMU, for tests of the task: two processes that only wait, and sockets that this process serves.

use std::io::{BufRead, BufReader as LineReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use sandling_network::Flow;
use sandling_protocol::frame::{self, Decoder};
use sandling_protocol::{ToGuest, ToHost};
use sandling_vmm::machine::{Machine, MachineDir};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::broadcast;

use super::super::hibernation::{Hibernation, Writing};
use crate::link::Link;
use crate::machine::{ENGINE_FILE, Live};
use crate::model::{Kept, SandboxInfo, SnapshotId, Standing};
use crate::sandbox::CreateError;
use crate::snapshot::SnapshotError;

pub(super) struct FakeMachines {
    sandboxes: PathBuf,
    /// The next save or restore fails.
    pub(super) fails: AtomicBool,
    /// While somebody has this, saves take.
    pub(super) slow: tokio::sync::Mutex<()>,
    /// The newest machine.
    newest: Mutex<Option<FakeMachine>>,
}

#[derive(Clone)]
pub(super) struct FakeMachine {
    pub(super) pid: i32,
    pub(super) stopped: Arc<AtomicBool>,
    /// It cannot write.
    full: Arc<AtomicBool>,
    /// What it says to those that listen to its QMP.
    says: broadcast::Sender<Value>,
}

impl FakeMachines {
    pub(super) fn new(sandboxes: PathBuf) -> Self {
        Self { sandboxes, fails: AtomicBool::new(false), slow: Default::default(), newest: Mutex::default() }
    }

    pub(super) fn newest(&self) -> FakeMachine {
        self.newest.lock().unwrap().clone().unwrap()
    }

    pub(super) fn dir(&self, info: &SandboxInfo) -> PathBuf {
        self.sandboxes.join(info.id.as_str())
    }

    /// Starts a machine, and adopts it as an engine does with one that it did not start.
    #[expect(clippy::zombie_processes, reason = "the adopting machine watches the supervisor by its id")]
    pub(super) async fn start(&self, info: &SandboxInfo) -> Live {
        let path = self.dir(info);
        let dir = MachineDir::new(&path);
        dir.create().unwrap();
        std::fs::write(path.join(ENGINE_FILE), "fake").unwrap();
        // As the real one, the supervisor ends when the program ends.
        let script = "sleep 1000 >&- & echo $!; wait";
        let mut supervisor = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut pid = String::new();
        LineReader::new(supervisor.stdout.take().unwrap()).read_line(&mut pid).unwrap();
        let pid = pid.trim().parse().unwrap();
        let record = json!({
            "qemu": identity(pid), "keeper": identity(supervisor.id() as i32), "cgroup": null, "boundary": info.boundary
        });
        std::fs::write(dir.record(), record.to_string()).unwrap();
        let fake = FakeMachine { pid, stopped: Arc::default(), full: Arc::default(), says: broadcast::Sender::new(16) };
        let qemu = fake.clone();
        serve(&dir.supervisor().join("qmp.sock"), move |stream| qemu.clone().answer(stream));
        serve(&dir.supervisor().join("control.sock"), answer_greetings);
        *self.newest.lock().unwrap() = Some(fake);
        let machine = Machine::adopt(dir).await.unwrap().unwrap();
        let greeting = Link::greet(machine.connect_control().await.unwrap()).await.unwrap();
        Live { link: greeting.answered(std::time::Duration::from_secs(10)).await.unwrap(), machine }
    }
}

impl Hibernation for FakeMachines {
    fn freeze<'a>(
        &'a self,
        live: &'a Live,
        info: &'a SandboxInfo,
        id: SnapshotId,
        _: Vec<Flow>,
        _: Kept,
    ) -> BoxFuture<'a, Result<(Standing, Writing), SnapshotError>> {
        Box::pin(async move {
            live.machine.stop().await.unwrap();
            drop(self.slow.lock().await);
            let fails = self.fails.swap(false, Ordering::SeqCst);
            let slept = Standing { restored: Some(id), moving: None, ..info.standing.clone() };
            let writing: Writing = Box::pin(async move { if fails { Err(SnapshotError::CutOff) } else { Ok(slept) } });
            Ok((Standing { moving: None, ..info.standing.clone() }, writing))
        })
    }

    fn restore<'a>(&'a self, info: &'a SandboxInfo) -> BoxFuture<'a, Result<Live, CreateError>> {
        Box::pin(async move {
            match self.fails.swap(false, Ordering::SeqCst) {
                true => Err(CreateError::NoSnapshot),
                false => Ok(self.start(info).await),
            }
        })
    }
}

impl FakeMachine {
    pub(super) fn is_alive(&self) -> bool {
        // A zombie has ended.
        std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).is_ok_and(|stat| !stat.contains(") Z "))
    }

    /// Lets every write fail, or no longer.
    pub(super) fn fill_disk(&self, full: bool) {
        self.full.store(full, Ordering::SeqCst);
        if full {
            // There is always a listener: the connection of an engine.
            self.says.send(json!({ "event": "BLOCK_IO_ERROR", "data": { "action": "stop" } })).unwrap();
        }
    }

    pub(super) fn kill(&self) {
        let pid = rustix::process::Pid::from_raw(self.pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }

    async fn answer(self, stream: UnixStream) {
        let (read, mut write) = stream.into_split();
        let (mut lines, mut said) = (BufReader::new(read).lines(), self.says.subscribe());
        let mut answer = json!({ "QMP": {} });
        while write.write_all(format!("{answer}\n").as_bytes()).await.is_ok() {
            tokio::select! {
                line = lines.next_line() => {
                    let Ok(Some(line)) = line else { return };
                    let command: Value = serde_json::from_str(&line).unwrap();
                    match command["execute"].as_str() {
                        Some("stop") => self.stopped.store(true, Ordering::SeqCst),
                        Some("cont") => {
                            self.stopped.store(false, Ordering::SeqCst);
                            self.fill_disk(self.full.load(Ordering::SeqCst));
                        }
                        _ => {}
                    }
                    answer = json!({ "return": {}, "id": command["id"] });
                }
                event = said.recv() => answer = event.unwrap(),
            }
        }
    }
}

async fn answer_greetings(mut stream: UnixStream) {
    let (mut decoder, mut buffer) = (Decoder::new(), vec![0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        for frame in decoder.push::<ToGuest>(&buffer[..count]).into_iter().flatten() {
            let ToGuest::Hello { nonce, generation } = frame.message else { continue };
            let hello = frame::encode(&ToHost::Hello { nonce, generation }, &[]).unwrap();
            // A host that has gone needs no answer.
            let _ = stream.write_all(&hello).await;
        }
    }
}

fn serve<F: Future<Output = ()> + Send + 'static>(path: &Path, answer: impl Fn(UnixStream) -> F + Send + 'static) {
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
}

/// How a machine's record names a process.
fn identity(pid: i32) -> Value {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let ticks: u64 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    json!({ "pid": pid, "start_ticks": ticks, "boot_id": boot_id.trim() })
}
