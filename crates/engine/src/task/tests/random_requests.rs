//! Random requests to the real task of a sandbox whose machine is a fake.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use proptest::prelude::*;
use sandling_vmm::machine::MachineDir;
use sandling_wire::Home;
use serde_json::json;

use super::super::Host;
use super::fake::FakeMachines;
use crate::lifecycle::{Refused, Request, Verdict, decide};
use crate::model::{EndReason, Kept, LifetimeChange, SandboxId, SandboxInfo, State};
use crate::parts::Parts;
use crate::parts::tests::parts;
use crate::registry::Registry;
use crate::sandbox::{ChangeError, Phase, Sandbox, UseError};
use crate::store::SandboxRow;

/// What happens to a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Pause,
    Resume,
    Hibernate,
    Wake,
    /// A save or a restore that fails.
    HibernateInVain,
    WakeInVain,
    /// The store refuses to write.
    PauseUnwritten,
    HibernateUnwritten,
    WakeUnwritten,
    Extend,
    /// Its time to live passes.
    Expire,
    /// It is used for too little time.
    IdleLimit,
    /// It is persistent and idle.
    Idle,
    DiskFull,
    GuestDies,
    /// Its engine dies, and another takes it over.
    TakeOver,
    /// Its engine dies, its machine as well, and another engine tries to take it over.
    TakeOverTooLate,
    Kill,
}

fn any_step() -> impl Strategy<Value = Step> {
    use Step::*;
    prop_oneof![
        12 => prop::sample::select(vec![Pause, Resume, Hibernate, Wake, Extend, Idle, TakeOver]),
        4 => prop::sample::select(vec![HibernateInVain, WakeInVain, PauseUnwritten, HibernateUnwritten, WakeUnwritten]),
        2 => prop::sample::select(vec![DiskFull]),
        1 => prop::sample::select(vec![Expire, IdleLimit, GuestDies, TakeOverTooLate, Kill]),
    ]
}

/// A home with one sandbox, and what should be true of it.
struct World {
    host: Host,
    store: PathBuf,
    fakes: Arc<FakeMachines>,
    sandbox: Arc<Sandbox>,
    /// The events so far.
    events: Vec<&'static str>,
    ended: Option<EndReason>,
}

fn example(sleeps: bool) -> SandboxInfo {
    let layers = ["user_namespace", "mount_namespace", "network_namespace", "pid_namespace", "ipc_namespace"];
    let further = ["unprivileged_user", "no_capabilities", "no_new_privs", "seccomp"];
    let layers = layers.into_iter().chain(further).map(|name| (name.to_owned(), json!(true)));
    let boundary: serde_json::Map<_, _> =
        layers.chain([("accelerator".to_owned(), json!("tcg")), ("landlock".to_owned(), json!("full"))]).collect();
    let now = jiff::Timestamp::now();
    let sleep = json!({ "is_free": sleeps, "at_the_end": sleeps });
    serde_json::from_value(json!({
        "id": SandboxId::fresh(), "template": "base", "image": "", "state": "running", "vcpus": 1, "memory_mib": 1,
        "disk_mib": 1, "pids": 1, "created_at": now, "boot_mode": "restore", "boot_ms": 1.0, "workspace": "w",
        "boundary": boundary, "lifetime": { "from": now, "ttl_seconds": 3600, "persistent": false, "sleep": sleep },
    }))
    .unwrap()
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), future).await.unwrap_or_else(|_| panic!("{what} takes too long"))
}

impl World {
    async fn new(home: &Home, parts: &Parts, sleeps: bool) -> Self {
        let (parts, registry) = (parts.clone(), Arc::new(Registry::default()));
        let fakes = Arc::new(FakeMachines::new(parts.machines.factory.sandboxes.clone()));
        let host = Host { parts, registry, hibernate_after: Some(Duration::ZERO), hibernation: fakes.clone() };
        let info = example(sleeps);
        host.parts.store.insert_sandbox("fake", &info).unwrap();
        let live = fakes.start(&info).await;
        let sandbox = host.start(Phase::Running(Arc::new(live)), info).unwrap();
        Self { host, store: home.store(), fakes, sandbox, events: Vec::new(), ended: None }
    }

    fn state(&self) -> State {
        self.sandbox.phase.borrow().state()
    }

    /// What a request should lead to.
    fn expect(&mut self, request: &Request) -> Result<(), Refused> {
        let before = self.state();
        let Verdict::Go(next) = decide(before, request)? else { return Ok(()) };
        self.events.push(match (before, next) {
            (_, State::Paused) => "paused",
            (State::Paused, State::Running) => "resumed",
            (State::Hibernated, State::Running) => "woken",
            (_, State::Hibernated) => "hibernated",
            (_, State::Stalled) => "disk_full",
            (_, State::Ended) => "ended",
            other => panic!("{other:?}"),
        });
        if let Request::End(reason) = request {
            self.ended = Some(reason.clone());
        }
        Ok(())
    }

    async fn ask(&mut self, request: Request) {
        let sandbox = self.sandbox.clone();
        let expected = self.expect(&request);
        let answer = match &request {
            Request::Pause => sandbox.pause().await,
            Request::Resume => sandbox.resume().await,
            Request::Hibernate(_) => sandbox.hibernate().await,
            Request::Wake => sandbox.wake().await,
            Request::End(reason) => sandbox.end(reason.clone()).await,
            other => panic!("{other:?}"),
        };
        match (answer, expected) {
            (Ok(()), Ok(())) => {}
            (Err(ChangeError::Refused(refused)), Err(expected)) => assert_eq!(refused, expected, "{request:?}"),
            (answer, expected) => panic!("{request:?}: {answer:?} instead of {expected:?}"),
        }
    }

    /// Asks for something that has to fail if it is allowed and would change anything, and then changes nothing.
    async fn ask_in_vain(&mut self, request: Request) {
        let (before, asked) = (self.state().shown(), decide(self.state(), &request));
        let answer = match request {
            Request::Pause => self.sandbox.pause().await,
            Request::Hibernate(_) => self.sandbox.hibernate().await,
            _ => self.sandbox.wake().await,
        };
        assert_eq!(answer.is_ok(), asked == Ok(Verdict::NothingToDo), "{request:?}: {answer:?}");
        assert_eq!(self.state().shown(), before, "{request:?}");
    }

    async fn ask_unwritten(&mut self, request: Request) {
        let store = rusqlite::Connection::open(&self.store).unwrap();
        let (id, refuse) = (self.sandbox.id(), "BEGIN SELECT RAISE(ABORT, 'refused'); END");
        let trigger = format!(
            "DROP TRIGGER IF EXISTS full; CREATE TRIGGER full BEFORE UPDATE ON sandboxes WHEN NEW.id = '{id}' {refuse}"
        );
        store.execute_batch(&trigger).unwrap();
        self.ask_in_vain(request).await;
        store.execute_batch("DROP TRIGGER full").unwrap();
    }

    /// Changes the lifetime, waits for what should follow, and changes it back.
    async fn pass_time(&mut self, change: LifetimeChange, request: Option<Request>) {
        let expected = request.map_or(Ok(()), |request| self.expect(&request));
        expected.expect("time asks only for what is allowed");
        let states = self.events.len();
        self.sandbox.set_lifetime(change).await.unwrap();
        self.caught_up(states).await;
        let back = LifetimeChange { ttl_seconds: Some(Some(3600)), idle_seconds: Some(None), persistent: Some(false) };
        self.sandbox.set_lifetime(back).await.unwrap();
    }

    /// Waits until as many events have been recorded as were expected, and the phase follows the last of them.
    async fn caught_up(&self, count: usize) {
        let all = async {
            while self.recorded().len() < count {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            if self.ended.is_some() {
                self.sandbox.ended().await;
            }
        };
        within("an expected event", all).await;
    }

    async fn die(&mut self) {
        if self.sandbox.phase.borrow().live().is_err() {
            return;
        }
        let reason = EndReason::GuestDied("its supervisor was killed".to_owned());
        self.expect(&Request::End(reason)).unwrap();
        self.fakes.newest().kill();
        self.caught_up(self.events.len()).await;
    }

    async fn fill_disk(&mut self) {
        if self.state() == State::Running {
            self.expect(&Request::Stall).unwrap();
            self.fakes.newest().fill_disk(true);
            self.caught_up(self.events.len()).await;
            let mut phase = self.sandbox.phase.clone();
            within("the stall", phase.wait_for(|phase| phase.state() == State::Stalled)).await.unwrap();
            self.fakes.newest().fill_disk(false);
        }
    }

    async fn take_over(&mut self, machine_died: bool) {
        let before = self.state();
        if before == State::Ended {
            return;
        }
        self.sandbox.let_go().await;
        if machine_died && before != State::Hibernated {
            self.fakes.newest().kill();
            while self.fakes.newest().is_alive() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        let row = self.row().expect("it lives").info;
        self.sandbox = self.host.start(Phase::Orphaned, row.clone()).unwrap();
        let refused = self.sandbox.pause().await;
        assert!(matches!(refused, Err(ChangeError::Refused(Refused::NotReadyYet))), "{refused:?}");
        within("the takeover", self.sandbox.take_over()).await.unwrap();
        if machine_died && before != State::Hibernated {
            self.events.push("ended");
            self.ended = Some(EndReason::Lost("its machine had ended".to_owned()));
            return self.caught_up(self.events.len()).await;
        }
        assert_eq!(Ok(Verdict::Go(self.state())), decide(State::Orphaned, &Request::TakeOver(row.state)));
        if before != State::Hibernated {
            self.events.push("taken_over");
        }
    }

    async fn go(&mut self, step: Step) {
        let expiry = LifetimeChange { ttl_seconds: Some(Some(0)), ..LifetimeChange::default() };
        let idle_limit = LifetimeChange { idle_seconds: Some(Some(0)), ..LifetimeChange::default() };
        let persistent = LifetimeChange { persistent: Some(true), ..LifetimeChange::default() };
        let (awake, ended) = (self.sandbox.phase.borrow().live().is_ok(), self.state() == State::Ended);
        let sleep = self.sandbox.info().lifetime.sleep;
        match step {
            Step::Pause => self.ask(Request::Pause).await,
            Step::Resume => self.ask(Request::Resume).await,
            Step::Hibernate => self.ask(Request::Hibernate(Kept::Everything)).await,
            Step::Wake => self.ask(Request::Wake).await,
            Step::Kill => self.ask(Request::End(EndReason::Requested)).await,
            Step::HibernateInVain if awake => {
                self.fakes.fails.store(true, Ordering::SeqCst);
                self.ask_in_vain(Request::Hibernate(Kept::Everything)).await;
            }
            Step::WakeInVain if !awake && !ended => {
                self.fakes.fails.store(true, Ordering::SeqCst);
                self.ask_in_vain(Request::Wake).await;
            }
            Step::HibernateInVain | Step::WakeInVain => {}
            Step::PauseUnwritten => self.ask_unwritten(Request::Pause).await,
            Step::HibernateUnwritten => self.ask_unwritten(Request::Hibernate(Kept::Everything)).await,
            Step::WakeUnwritten => self.ask_unwritten(Request::Wake).await,
            Step::Extend => self.pass_time(LifetimeChange::default(), None).await,
            Step::Expire if ended || !awake && sleep.is_free => self.pass_time(expiry, None).await,
            Step::Expire if sleep.at_the_end => {
                self.pass_time(expiry, Some(Request::Hibernate(Kept::Everything))).await
            }
            Step::Expire => self.pass_time(expiry, Some(Request::End(EndReason::Ttl))).await,
            Step::IdleLimit if ended || !awake && sleep.is_free => self.pass_time(idle_limit, None).await,
            Step::IdleLimit => self.pass_time(idle_limit, Some(Request::End(EndReason::Idle))).await,
            Step::Idle => self.pass_time(persistent, awake.then_some(Request::Hibernate(Kept::Everything))).await,
            Step::DiskFull => self.fill_disk().await,
            Step::GuestDies => self.die().await,
            Step::TakeOver => self.take_over(false).await,
            Step::TakeOverTooLate => self.take_over(true).await,
        }
        if self.sandbox.phase.borrow().live().is_ok() {
            let deadline = MachineDir::new(self.fakes.dir(&self.sandbox.info)).deadline();
            let set = async {
                while !deadline.exists() {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            };
            within("the deadline that holds without an engine", set).await;
        }
    }

    fn row(&self) -> Option<SandboxRow> {
        let rows = self.host.parts.store.living_sandboxes().unwrap().readable;
        rows.into_iter().find(|row| row.info.id == *self.sandbox.id())
    }

    fn recorded(&self) -> Vec<String> {
        let events = self.host.parts.events.newest("w", Some(self.sandbox.id()), 1000).unwrap();
        // The fakes have no network card, and a machine that stands still tries again by itself.
        events
            .into_iter()
            .map(|event| event.kind)
            .filter(|kind| !matches!(&**kind, "network_failed" | "disk_free"))
            .collect()
    }

    fn check(&self) {
        let (state, machine, id) = (self.state(), self.fakes.newest(), self.sandbox.id());
        assert_eq!(self.recorded(), self.events, "the events are those of the transitions");
        assert_eq!(self.row().map(|row| row.info.state), (state != State::Ended).then_some(self.state().shown()));
        let has_machine = matches!(state, State::Running | State::Stalled | State::Paused);
        if state != State::Stalled {
            assert_eq!(machine.stopped.load(Ordering::SeqCst) && has_machine, state == State::Paused);
        }
        // The phase changes before the machine ends; the next request waits for that.
        if state == State::Ended || has_machine {
            assert_eq!((machine.is_alive(), self.fakes.dir(&self.sandbox.info).exists()), (has_machine, has_machine));
        }
        let Some(reason) = &self.ended else { return assert_ne!(state, State::Ended) };
        let (_, why) = self.host.parts.store.ended_sandbox(id.as_str()).unwrap().expect("it has ended");
        assert_eq!((state, why), (State::Ended, reason.to_string()));
        assert!(self.host.registry.get(id).is_none(), "it is still registered");
        assert!(matches!(self.sandbox.live(), Err(UseError::Ended(told)) if told == *reason));
    }
}

#[test]
fn the_task_makes_the_transitions_that_the_lifecycle_allows_and_no_others() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let home = Home::new(dir.path().to_owned());
    let parts = runtime.block_on(async { parts(&home) });
    let steps = prop::collection::vec(any_step(), 1..25);
    let config = ProptestConfig { cases: 48, max_shrink_iters: 10, ..ProptestConfig::default() };
    proptest!(config, |(steps in steps, sleeps in any::<bool>())| {
        runtime.block_on(async {
            let mut world = World::new(&home, &parts, sleeps).await;
            for step in steps {
                world.go(step).await;
                world.check();
            }
            if world.state() != State::Ended {
                world.go(Step::Kill).await;
            }
            world.check();
        });
    });
}

#[tokio::test]
async fn a_machine_that_cannot_write_stalls_until_there_is_room_again() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::new(dir.path().to_owned());
    let mut world = World::new(&home, &parts(&home), false).await;
    world.go(Step::DiskFull).await;
    assert!(matches!(world.sandbox.live(), Err(UseError::Refused(Refused::DiskFull))));
    let mut phase = world.sandbox.phase.clone();
    within("the next try", phase.wait_for(|phase| phase.state() == State::Running)).await.unwrap();
    world.go(Step::Kill).await;
    world.check();
}

#[tokio::test]
async fn a_sandbox_is_steady_only_after_a_hibernation_that_has_begun() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::new(dir.path().to_owned());
    let mut world = World::new(&home, &parts(&home), false).await;
    within("no hibernation", world.sandbox.steady()).await;
    let fakes = world.fakes.clone();
    let slow = fakes.slow.lock().await;
    let sandbox = world.sandbox.clone();
    let hibernation = tokio::spawn(async move { sandbox.hibernate().await });
    let mut hibernating = world.sandbox.hibernating.clone();
    within("its beginning", hibernating.wait_for(|hibernating| *hibernating)).await.unwrap();
    assert!(world.sandbox.steady().now_or_never().is_none() && !world.sandbox.hibernates());
    drop(slow);
    within("its end", world.sandbox.steady()).await;
    assert!(world.sandbox.hibernates());
    hibernation.await.unwrap().unwrap();
    // One that fails is over, too.
    world.go(Step::Wake).await;
    // A call that has begun delays the save, until it ends.
    let call = world.sandbox.steady().await;
    let sandbox = world.sandbox.clone();
    let hibernation = tokio::spawn(async move { sandbox.hibernate().await });
    within("its beginning", hibernating.wait_for(|hibernating| *hibernating)).await.unwrap();
    assert!(!world.sandbox.hibernates());
    drop(call);
    hibernation.await.unwrap().unwrap();
    world.go(Step::Wake).await;
    // A call that lasts does not keep it from hibernating.
    let call = world.sandbox.steady().await;
    within("a hibernation beside a call", world.sandbox.hibernate()).await.unwrap();
    drop(call);
    world.go(Step::Wake).await;
    fakes.fails.store(true, Ordering::SeqCst);
    assert!(world.sandbox.hibernate().await.is_err());
    within("a failure", world.sandbox.steady()).await;
    world.go(Step::Kill).await;
}

#[tokio::test]
async fn a_machine_that_writes_too_much_stands_still_until_there_is_space_again() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::new(dir.path().to_owned());
    let mut world = World::new(&home, &parts(&home), false).await;
    let disk = world.host.parts.disk.clone();
    let mut phase = world.sandbox.phase.clone();
    disk.stop([world.sandbox.id().clone()]);
    within("the stall", phase.wait_for(|phase| phase.state() == State::Stalled)).await.unwrap();
    assert!(world.fakes.newest().stopped.load(Ordering::SeqCst));
    let events = world.host.parts.events.newest("w", Some(world.sandbox.id()), 1000).unwrap();
    assert!(events.last().is_some_and(|event| event.detail["why"].as_str().unwrap().contains("reserved")));
    world.events.push("disk_full");
    disk.let_all_go_on();
    within("the next try", phase.wait_for(|phase| phase.state() == State::Running)).await.unwrap();
    world.go(Step::Kill).await;
    world.check();
}
