//! One language's warm side: a zygote that forks spares, or spares started ahead where forking is not possible.
//!
//! One spare is kept ready. It is made again some time after it was used, not at once: whoever uses it needs the
//! processor now. Whoever comes in between gets one made on the spot.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use sandling_protocol::{Failure, FailureKind, Language, Response, StreamId};

use super::activation::Knows;
use super::control::Control;
use super::drivers::Mode;
use super::message::Message;
use super::packages::Packages;
use super::table::{Interpreter, Role, Streams};
use crate::agent::{Agent, Owner};
use crate::environment::{Variables, compose};
use crate::exec::{Plan, Setting};
use crate::failure::{failure, io_failure, launch_failure};
use crate::identify::reseed_line;
use crate::sys::launch::{LaunchError, launch};
use crate::sys::poller::{Interest, Source};
use crate::sys::{children, fds, socket};
use crate::timers::Timer;
use crate::users::User;

/// How long after a spare's script has ended the next spare is made.
const REFILL_AFTER: Duration = Duration::from_millis(100);
/// The same for one that goes on for longer than this.
const REFILL_MEANWHILE: Duration = Duration::from_secs(1);
/// Nothing tells when a socket has been read; this is looked at before a snapshot only.
const SETTLE_POLL: Duration = Duration::from_millis(5);
const RETRY_AFTER: Duration = Duration::from_secs(1);
const MOST_FAILURES: u32 = 5;

/// What makes spares does so behind everybody else.
const LOW_PRIORITY: i32 = 10;

/// Whether a spare is made ahead, and rehearses, or for somebody who waits, and does not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Haste {
    None,
    SomebodyWaits,
}

#[derive(Default)]
pub struct Lane {
    imports: Vec<String>,
    zygote: Option<u64>,
    zygote_ready: bool,
    failed_imports: Vec<String>,
    packages: Packages,
    /// A spare that nobody has claimed.
    spare: Option<u64>,
    /// It has done all it can before it is claimed.
    spare_waits: bool,
    /// Spares a zygote was asked for, in order.
    forking: VecDeque<u64>,
    waiting: Vec<StreamId>,
    failures: u32,
    /// When the next spare is to be made. A timer that was set for an earlier time, perhaps before a snapshot, does
    /// not count.
    refill_at: Option<Instant>,
}

impl Lane {
    pub fn forget_waiting(&mut self, stream: StreamId) {
        self.waiting.retain(|waiting| *waiting != stream);
    }
}

impl Agent {
    /// Keeps a warm interpreter from now on; the stream ends when the first is ready.
    pub fn warm(&mut self, stream: StreamId, language: Language, imports: Vec<String>) -> Result<(), Failure> {
        if language == Language::Bash {
            self.streams.end(stream, Ok(Response::Done));
            return Ok(());
        }
        self.cool(language);
        self.interpreters.lanes.insert(language, Lane { imports, ..Lane::default() });
        if let Err(error) = self.refill(language) {
            self.interpreters.lanes.remove(&language);
            return Err(error);
        }
        if let Some(lane) = self.interpreters.lanes.get_mut(&language) {
            lane.waiting.push(stream);
        }
        Ok(())
    }

    /// Ends the stream when a spare waits to be claimed.
    pub fn settle(&mut self, stream: StreamId, language: Language) -> Result<(), Failure> {
        let Some(lane) = self.interpreters.lanes.get_mut(&language).filter(|lane| !lane.spare_waits) else {
            self.streams.end(stream, Ok(Response::Done));
            return Ok(());
        };
        lane.waiting.push(stream);
        self.refill(language)?;
        if language == Language::Python {
            self.check_spare(language);
        }
        Ok(())
    }

    /// Lets go of a language's zygote and spare.
    fn cool(&mut self, language: Language) {
        let Some(lane) = self.interpreters.lanes.remove(&language) else {
            return;
        };
        for key in lane.zygote.into_iter().chain(lane.spare).chain(lane.forking) {
            self.drop_interpreter(key);
        }
        for stream in lane.waiting {
            self.streams.end(stream, Err(failure(FailureKind::Busy, "another request to warm it came in between")));
        }
    }

    /// Sees to it that there is, or will be, a spare.
    pub fn refill(&mut self, language: Language) -> Result<(), Failure> {
        let Some(lane) = self.interpreters.lanes.get(&language) else {
            return Ok(());
        };
        let needs_zygote = language == Language::Python && lane.zygote.is_none();
        if lane.failures > MOST_FAILURES || lane.spare.is_some() || (!needs_zygote && !self.can_make_spare(language)) {
            return Ok(());
        }
        if needs_zygote {
            return self.start_zygote(language);
        }
        let key = self.make_spare(language, Haste::None)?;
        if let Some(lane) = self.interpreters.lanes.get_mut(&language) {
            lane.spare = Some(key);
            lane.spare_waits = false;
        }
        Ok(())
    }

    fn can_make_spare(&self, language: Language) -> bool {
        let lane = self.interpreters.lanes.get(&language);
        lane.is_some_and(|lane| language == Language::Node || lane.zygote_ready)
    }

    /// A warm interpreter for somebody, if there can be one without a cold start.
    pub fn claim(&mut self, language: Language) -> Option<u64> {
        let lane = self.interpreters.lanes.get_mut(&language)?;
        // What is not forked warms up for longer than a cold start takes; it goes on for who comes later.
        if language == Language::Node && !lane.spare_waits {
            self.refill_after(REFILL_MEANWHILE, language);
            return None;
        }
        lane.spare_waits = false;
        let spare = lane.spare.take();
        self.refill_after(REFILL_MEANWHILE, language);
        if spare.is_some() {
            return spare;
        }
        if !self.can_make_spare(language) {
            return None;
        }
        self.make_spare(language, Haste::SomebodyWaits).ok()
    }

    /// What an interpreter that somebody has claimed need not be told for this.
    pub fn knows(&mut self, key: u64, setting: &Setting) -> Knows {
        let Some(interpreter) = self.interpreters.get(key) else {
            return Knows::default();
        };
        let environment = interpreter.rehearsed.clone();
        let lane = interpreter.language;
        let packages = self.interpreters.lanes.get(&lane).is_some_and(|lane| lane.packages.are_as_noted(setting));
        Knows { environment, packages }
    }

    fn make_spare(&mut self, language: Language, haste: Haste) -> Result<u64, Failure> {
        match language {
            Language::Node => self.start_spare(language),
            _ => self.fork_spare(language, haste).map_err(|error| io_failure("a warm interpreter", &error)),
        }
    }

    fn start_zygote(&mut self, language: Language) -> Result<(), Failure> {
        let key = self.start_driver(language, Mode::Zygote, Role::Zygote)?;
        let Some(lane) = self.interpreters.lanes.get_mut(&language) else {
            return Ok(());
        };
        lane.zygote = Some(key);
        lane.zygote_ready = false;
        let imports = serde_json::json!({ "imports": lane.imports }).to_string();
        self.tell(key, imports.as_bytes());
        Ok(())
    }

    fn start_spare(&mut self, language: Language) -> Result<u64, Failure> {
        self.start_driver(language, Mode::Spare, Role::Spare)
    }

    /// Starts a driver in the background. What becomes of it comes over its control socket.
    fn start_driver(&mut self, language: Language, mode: Mode, role: Role) -> Result<u64, Failure> {
        let unusable = |error: &io::Error| io_failure("an interpreter", error);
        let (streams, theirs) = stream_pairs().map_err(|error| unusable(&error))?;
        let (ours, their_control) = socket::pair().map_err(|error| unusable(&error))?;
        let setting = Setting::ours(compose(&self.variables, &User::ourselves(), &Variables::new()));
        let plan = Plan::argv(&self.drivers.command(language, mode), &setting.variables)?;
        let cgroup = self.cgroups.take();
        // Nobody reads what a zygote prints while it imports.
        let (stdin, stdout, stderr) = match role {
            Role::Zygote => (&self.null, &self.null, &self.null),
            _ => (&theirs.stdin, &theirs.stdout, &theirs.stderr),
        };
        let mut ready = plan.launch(&setting, [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()])?;
        ready.extra = Some(their_control.as_fd());
        ready.niceness = LOW_PRIORITY;
        ready.cgroup = cgroup.as_ref().map(|cgroup| cgroup.procs());
        let pid = launch(&ready).map_err(|error| interpreter_failure(&plan, &error))?;
        let key = self.interpreters.next_key();
        let control = Control::new(ours);
        self.poller.add(control.fd(), Source::Control(key), Interest::Read).map_err(|error| unusable(&error))?;
        self.children.insert(pid, Owner::Interpreter(key));
        let streams = Some(streams);
        let rehearsed = None;
        let interpreter = Interpreter { key, language, role, pid: Some(pid), control, streams, cgroup, rehearsed };
        self.interpreters.insert(interpreter);
        Ok(key)
    }

    /// Asks a zygote for a spare. It can be claimed at once; what it is sent waits until its process is known.
    fn fork_spare(&mut self, language: Language, haste: Haste) -> io::Result<u64> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let rehearse = (haste == Haste::None).then(|| self.usual_variables());
        let line = format!("{}\n", serde_json::json!({ "fork": true, "rehearse": rehearse }));
        let (streams, theirs) = stream_pairs()?;
        let (ours, their_control) = socket::pair()?;
        let key = self.interpreters.next_key();
        self.poller.add(&ours, Source::Control(key), Interest::Read)?;
        let lane = self.interpreters.lanes.get_mut(&language).ok_or_else(gone)?;
        let zygote = lane.zygote.ok_or_else(gone)?;
        lane.forking.push_back(key);
        if lane.forking.len() == 1 {
            self.unclaimed_endings.clear();
        }
        let fds = [theirs.stdin.as_fd(), theirs.stdout.as_fd(), theirs.stderr.as_fd(), their_control.as_fd()];
        let zygote = self.interpreters.get(zygote).ok_or_else(gone)?;
        if let Err(error) = zygote.control.send_with_fds(line.as_bytes(), fds) {
            if let Some(lane) = self.interpreters.lanes.get_mut(&language) {
                lane.forking.pop_back();
            }
            return Err(error);
        }
        let cgroup = self.cgroups.take();
        let control = Control::held(ours);
        let streams = Some(streams);
        let role = Role::Spare;
        let interpreter = Interpreter { key, language, role, pid: None, control, streams, cgroup, rehearsed: rehearse };
        self.interpreters.insert(interpreter);
        Ok(key)
    }

    /// The environment of most commands.
    fn usual_variables(&self) -> Variables {
        User::find(None).map_or_else(|_| Variables::new(), |user| compose(&self.variables, &user, &Variables::new()))
    }

    /// A zygote or a spare has said something.
    pub fn lane_said(&mut self, key: u64, language: Language, role: Role, message: &Message<'_>) {
        match role {
            Role::Zygote if message.ready => {
                if let Some(lane) = self.interpreters.lanes.get_mut(&language) {
                    lane.zygote_ready = true;
                    lane.failed_imports = message.failed_imports.clone();
                    lane.packages = Packages::new(message);
                }
                self.refill_or_say(language);
            }
            Role::Zygote => self.zygote_answered(language, message),
            _ if message.ready => self.spare_is_ready(key, language),
            _ => {}
        }
    }

    fn zygote_answered(&mut self, language: Language, message: &Message<'_>) {
        let forked = self.interpreters.lanes.get_mut(&language).and_then(|lane| lane.forking.pop_front());
        match (forked, message.pid) {
            (Some(key), Some(pid)) => {
                self.has_process(key, pid);
                // A forked spare says nothing when it is ready; it is when it has read this.
                self.tell(key, reseed_line().as_bytes());
                self.check_spare(language);
            }
            (Some(key), None) => self.interpreter_lost(key),
            (None, _) => {}
        }
    }

    /// A forked interpreter's process is known: it is put in its place, and may hear what was kept for it.
    fn has_process(&mut self, key: u64, pid: u32) {
        let Some(interpreter) = self.interpreters.get(key) else {
            // Given up meanwhile.
            let _ = children::signal_process(pid, libc::SIGKILL);
            return;
        };
        interpreter.pid = Some(pid);
        if let Some(cgroup) = &interpreter.cgroup {
            let _ = cgroup.adopt(pid);
        }
        let role = interpreter.role;
        raise_priority(pid);
        self.children.insert(pid, Owner::Interpreter(key));
        if let Role::Script { exec } = role {
            let cgroup = self.interpreters.get(key).and_then(|interpreter| interpreter.cgroup.take());
            if let Some(exec) = self.execs.get(exec) {
                exec.cgroup = cgroup;
            }
            self.exec_has_process(exec, pid);
        }
        if let Some(interpreter) = self.interpreters.get(key) {
            interpreter.control.release();
        }
        self.control_interest(key);
        if let Some(at) = self.unclaimed_endings.iter().position(|(ended, _)| *ended == pid) {
            let (pid, ending) = self.unclaimed_endings.swap_remove(at);
            self.child_ended(pid, ending);
        }
    }

    /// Looks whether the spare waits to be told what to be. Only somebody who waits for that needs to know.
    pub fn check_spare(&mut self, language: Language) {
        let Some(lane) = self.interpreters.lanes.get(&language) else {
            return;
        };
        let (Some(key), false) = (lane.spare, lane.waiting.is_empty()) else {
            return;
        };
        match self.interpreters.get(key) {
            Some(spare) if spare.pid.is_some() && spare.control.is_read() => self.spare_is_ready(key, language),
            _ => self.timers.set(SETTLE_POLL, Timer::CheckSpare(language)),
        }
    }

    fn spare_is_ready(&mut self, key: u64, language: Language) {
        if let Some(pid) = self.interpreters.get(key).and_then(|spare| spare.pid) {
            raise_priority(pid);
        }
        let Some(lane) = self.interpreters.lanes.get_mut(&language) else {
            return;
        };
        if lane.spare != Some(key) {
            return;
        }
        lane.failures = 0;
        lane.spare_waits = true;
        let result = match lane.failed_imports.as_slice() {
            [] => Ok(Response::Done),
            failed => Err(failure(FailureKind::Unsupported, format!("cannot import {}", failed.join(", ")))),
        };
        for stream in std::mem::take(&mut lane.waiting) {
            self.streams.end(stream, result.clone());
        }
    }

    /// A script has ended: there is time for the next spare.
    pub fn refill_soon(&mut self, key: u64) {
        if let Some(language) = self.interpreters.get(key).map(|interpreter| interpreter.language) {
            self.refill_after(REFILL_AFTER, language);
        }
    }

    fn refill_after(&mut self, pause: Duration, language: Language) {
        if let Some(lane) = self.interpreters.lanes.get_mut(&language) {
            lane.refill_at = Some(Instant::now() + pause);
            self.timers.set(pause, Timer::Refill(language));
        }
    }

    pub fn refill_if_due(&mut self, language: Language) {
        let lane = self.interpreters.lanes.get(&language);
        if lane.is_some_and(|lane| lane.refill_at.is_none_or(|at| at <= Instant::now())) {
            self.refill_or_say(language);
        }
    }

    /// A zygote or a spare is no more.
    pub fn lane_lost(&mut self, key: u64, language: Language) {
        let Some(lane) = self.interpreters.lanes.get_mut(&language) else {
            return;
        };
        lane.failures += 1;
        lane.forking.retain(|forking| *forking != key);
        if lane.spare == Some(key) {
            lane.spare = None;
            lane.spare_waits = false;
        }
        let mut orphans = VecDeque::new();
        if lane.zygote == Some(key) {
            lane.zygote = None;
            lane.zygote_ready = false;
            orphans = std::mem::take(&mut lane.forking);
        }
        if lane.failures > MOST_FAILURES || !lane.waiting.is_empty() {
            let ended = failure(FailureKind::Other, "the interpreter ended while it was being warmed");
            for stream in std::mem::take(&mut lane.waiting) {
                self.streams.end(stream, Err(ended.clone()));
            }
        }
        for orphan in orphans {
            self.interpreter_lost(orphan);
        }
        self.refill_after(RETRY_AFTER, language);
    }

    pub fn refill_or_say(&mut self, language: Language) {
        if let Err(failure) = self.refill(language) {
            crate::console::say(&format!("no warm interpreter: {failure}"));
        }
    }
}

/// Our ends, which do not wait, and theirs, which do.
pub fn stream_pairs() -> io::Result<(Streams, Streams)> {
    let (their_stdin, stdin): (OwnedFd, OwnedFd) = fds::pipe()?;
    let (stdout, their_stdout) = fds::pipe()?;
    let (stderr, their_stderr) = fds::pipe()?;
    for ours in [&stdin, &stdout, &stderr] {
        fds::set_nonblocking(ours)?;
    }
    Ok((Streams { stdin, stdout, stderr }, Streams { stdin: their_stdin, stdout: their_stdout, stderr: their_stderr }))
}

pub fn interpreter_failure(plan: &Plan, error: &LaunchError) -> Failure {
    match error {
        LaunchError::Execute(source) if source.kind() == io::ErrorKind::NotFound => {
            failure(FailureKind::Unsupported, format!("this template has no {}", plan.name()))
        }
        _ => launch_failure(plan.name(), "/", error),
    }
}

/// Ends the low priority a spare was made with, for each of its threads.
fn raise_priority(pid: u32) {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return;
    };
    for thread in threads.flatten() {
        let id = thread.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        // Only root may, and only root has given it a low one.
        let _ = rustix::process::setpriority_process(id, 0);
    }
}
