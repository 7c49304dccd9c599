use std::time::{Duration, Instant};

use sandling_protocol::{
    CellReport, CellSpec, CellStatus, ContextSpec, ExitReason, FailureKind, Identity, Language, Program, Request,
    Response, StreamId,
};

use crate::harness::{Agent, Heard, Host, has, skip, spec};

fn available(language: Language) -> bool {
    let program = if language == Language::Node { "node" } else { "python3" };
    let there = has(program);
    if !there {
        skip(&format!("there is no {program}"));
    }
    there
}

fn create(host: &mut Host, id: &str, language: Language) -> Heard {
    let spec = ContextSpec { id: id.to_owned(), language, cwd: Some("/".to_owned()), env: path_of_tests(), user: None };
    host.ask(Request::CreateContext(spec))
}

/// The test machine's interpreters may be in other directories than a sandbox's.
fn path_of_tests() -> std::collections::BTreeMap<String, String> {
    [("PATH".to_owned(), std::env::var("PATH").unwrap())].into()
}

fn start_cell(host: &mut Host, context: &str, code: &str, timeout_ms: Option<u64>, output_limit: u64) -> StreamId {
    let spec =
        CellSpec { context: context.to_owned(), timeout_ms, output_limit, env: Default::default(), typescript: false };
    host.open_with(Request::RunCell(spec), code.as_bytes())
}

fn cell(host: &mut Host, context: &str, code: &str) -> (Heard, CellReport) {
    let stream = start_cell(host, context, code, Some(20_000), 10 << 20);
    ended(host, stream)
}

fn ended(host: &mut Host, stream: StreamId) -> (Heard, CellReport) {
    let mut heard = host.end(stream);
    match std::mem::take(&mut heard.outcome) {
        Some(sandling_protocol::Outcome::Ok(Response::Cell(report))) => (heard, report),
        other => panic!("{other:?}"),
    }
}

fn result(heard: &Heard) -> serde_json::Value {
    serde_json::from_slice(heard.results.split(|byte| *byte == b'\n').next().unwrap()).unwrap()
}

fn warm(host: &mut Host, language: Language) {
    identify(host);
    host.ask(Request::Warm { language, imports: vec![] }).response();
}

fn identify(host: &mut Host) -> sandling_protocol::Proof {
    let identity = Identity {
        unix_nanos: 0,
        entropy: "ab".repeat(32),
        hostname: "box".to_owned(),
        machine_id: "0".repeat(32),
        boot_id: "00000000-0000-0000-0000-000000000000".to_owned(),
        env: Some(path_of_tests()),
        limits: Default::default(),
    };
    match host.ask(Request::Identify(identity)).response() {
        Response::Identified(proof) => proof,
        other => panic!("{other:?}"),
    }
}

fn script(host: &mut Host, language: Language, code: &str, args: &[&str]) -> Heard {
    let args = args.iter().map(|&arg| arg.to_owned()).collect();
    let mut run = spec(Program::Code { language, args });
    run.env = path_of_tests();
    run.timeout_ms = Some(20_000);
    let stream = host.open_with(Request::Run(run), code.as_bytes());
    host.end(stream)
}

#[test]
fn variables_last_from_cell_to_cell() {
    if !available(Language::Python) {
        return;
    }
    let agent = Agent::start();
    let mut host = agent.connect();
    create(&mut host, "c", Language::Python).response();
    let (heard, report) = cell(&mut host, "c", "x = 20\nprint('é', x)");
    assert_eq!((heard.out().as_str(), report.status, report.number), ("é 20\n", CellStatus::Ok, 1));
    let (heard, report) = cell(&mut host, "c", "import sys; print('e', file=sys.stderr); x + 1");
    assert_eq!((result(&heard)["text/plain"].as_str(), heard.err().as_str()), (Some("21"), "e\n"));
    assert_eq!(report.number, 2);
    let (_, report) = cell(&mut host, "c", "1/0");
    assert_eq!((report.status, report.error.unwrap().name.as_str()), (CellStatus::Error, "ZeroDivisionError"));
}

#[test]
fn node_has_contexts_too() {
    if !available(Language::Node) {
        return;
    }
    let agent = Agent::start();
    let mut host = agent.connect();
    create(&mut host, "n", Language::Node).response();
    let (heard, report) = cell(&mut host, "n", "const x = 20; console.log('é', x)");
    assert_eq!((heard.out().as_str(), report.status), ("é 20\n", CellStatus::Ok));
    let (heard, _) = cell(&mut host, "n", "x + 1");
    assert_eq!(result(&heard)["text/plain"], "21");
    let (_, report) = cell(&mut host, "n", "nope()");
    assert_eq!((report.status, report.error.unwrap().name.as_str()), (CellStatus::Error, "ReferenceError"));
}

#[test]
fn output_of_child_processes_belongs_to_the_cell() {
    if !available(Language::Python) {
        return;
    }
    let agent = Agent::start();
    let mut host = agent.connect();
    create(&mut host, "c", Language::Python).response();
    let code = "import subprocess\nfor i in range(50): subprocess.run(['echo', str(i)])\nprint('end')";
    let (heard, _) = cell(&mut host, "c", code);
    let wanted: String = (0..50).map(|i| format!("{i}\n")).collect();
    assert_eq!(heard.out(), wanted + "end\n");
}

#[test]
fn a_cell_is_interrupted_by_request_and_by_its_deadline() {
    if !available(Language::Python) {
        return;
    }
    let agent = Agent::start();
    let mut host = agent.connect();
    create(&mut host, "c", Language::Python).response();
    cell(&mut host, "c", "x = 1");
    let code = "print('on', flush=True)\nwhile True: pass";
    let stream = start_cell(&mut host, "c", code, None, 1000);
    host.until(stream, |heard| !heard.stdout.is_empty());
    host.ask(Request::Interrupt { context: "c".to_owned() }).response();
    assert_eq!(ended(&mut host, stream).1.status, CellStatus::Interrupted);
    let stream = start_cell(&mut host, "c", code, Some(200), 1000);
    let (heard, report) = ended(&mut host, stream);
    assert_eq!((heard.out().as_str(), report.status, report.restarted), ("on\n", CellStatus::Timeout, false));
    assert_eq!(result(&cell(&mut host, "c", "x").0)["text/plain"], "1");
}

#[test]
fn a_cell_that_does_not_stop_is_killed_and_the_context_restarts() {
    if !available(Language::Python) {
        return;
    }
    let agent = Agent::start();
    let mut host = agent.connect();
    create(&mut host, "c", Language::Python).response();
    let code = "import signal\nx = 1\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass";
    let stream = start_cell(&mut host, "c", code, Some(200), 1000);
    let started = Instant::now();
    let (_, report) = ended(&mut host, stream);
    assert!(started.elapsed() > Duration::from_secs(1));
    assert_eq!((report.status, report.restarted), (CellStatus::Timeout, true));
    let (_, report) = cell(&mut host, "c", "x");
    assert_eq!((report.number, report.error.unwrap().name.as_str()), (2, "NameError"));
}

#[test]
fn a_cell_whose_interpreter_dies_reports_it_and_the_next_one_runs() {
    if !available(Language::Python) {
        return;
    }
    let agent = Agent::start();
    let mut host = agent.connect();
    create(&mut host, "c", Language::Python).response();
    let (heard, report) = cell(&mut host, "c", "import os\nprint('last words', flush=True)\nos._exit(3)");
    assert_eq!((heard.out().as_str(), report.status, report.restarted), ("last words\n", CellStatus::Died, true));
    assert_eq!(cell(&mut host, "c", "print('back')").0.out(), "back\n");
    let Response::Contexts { contexts } = host.ask(Request::ListContexts).response() else { panic!() };
    assert_eq!((contexts.len(), contexts[0].restarts, contexts[0].cells), (1, 1, 2));
}

#[test]
fn a_cell_that_prints_too_much_is_stopped() {
    if !available(Language::Python) {
        return;
    }
    let agent = Agent::start();
    let mut host = agent.connect();
    create(&mut host, "c", Language::Python).response();
    let stream = start_cell(&mut host, "c", "while True: print('x' * 1000)", None, 50_000);
    let (heard, report) = ended(&mut host, stream);
    assert_eq!((report.status, heard.stdout.len()), (CellStatus::OutputLimit, 50_000));
    assert!(report.dropped_bytes > 0);
    assert_eq!(cell(&mut host, "c", "print(1)").1.status, CellStatus::Ok);
}

#[test]
fn output_between_cells_comes_with_the_next() {
    if !available(Language::Python) {
        return;
    }
    let agent = Agent::start();
    let mut host = agent.connect();
    create(&mut host, "c", Language::Python).response();
    let mark = agent.path("mark");
    let code = format!(
        "import threading, time\ndef late():\n time.sleep(0.2); print('late', flush=True); open({mark:?}, 'w')\n\
         threading.Thread(target=late).start()"
    );
    assert_eq!(cell(&mut host, "c", &code).0.out(), "");
    crate::harness::wait_for(|| std::path::Path::new(&mark).exists());
    assert_eq!(cell(&mut host, "c", "print('next')").0.out(), "late\nnext\n");
}

#[test]
fn a_cell_runs_after_its_interpreter_was_killed_between_cells() {
    if !available(Language::Python) {
        return;
    }
    let agent = Agent::start();
    let mut host = agent.connect();
    create(&mut host, "c", Language::Python).response();
    for _ in 0..5 {
        // The kernel takes a while to free this much.
        let (heard, _) = cell(&mut host, "c", "import os; much = bytearray(200 << 20); print(os.getpid())");
        let pid = heard.out().trim().to_owned();
        assert_eq!(host.shell(&format!("kill -9 {pid}")).exit().code, 0);
        let (heard, report) = cell(&mut host, "c", "print('much' in globals())");
        assert_eq!((heard.out().as_str(), report.status), ("False\n", CellStatus::Ok));
    }
}

#[test]
fn contexts_are_separate_and_can_be_restarted_and_closed() {
    if !available(Language::Python) {
        return;
    }
    let agent = Agent::start();
    let mut host = agent.connect();
    create(&mut host, "a", Language::Python).response();
    create(&mut host, "b", Language::Python).response();
    cell(&mut host, "a", "x = 'a'");
    assert_eq!(cell(&mut host, "b", "x").1.status, CellStatus::Error);
    let busy = start_cell(&mut host, "a", "import time; time.sleep(60)", None, 1000);
    let spec = CellSpec {
        context: "a".to_owned(),
        timeout_ms: None,
        output_limit: 1,
        env: Default::default(),
        typescript: false,
    };
    assert_eq!(host.ask(Request::RunCell(spec)).failure().kind, FailureKind::Busy);
    let Response::Context(info) = host.ask(Request::RestartContext { context: "a".to_owned() }).response() else {
        panic!()
    };
    assert_eq!((info.restarts, info.busy), (1, false));
    assert_eq!(ended(&mut host, busy).1.status, CellStatus::Died);
    assert_eq!(cell(&mut host, "a", "x").1.error.unwrap().name, "NameError");
    host.ask(Request::CloseContext { context: "a".to_owned() }).response();
    let gone = CellSpec {
        context: "a".to_owned(),
        timeout_ms: None,
        output_limit: 1,
        env: Default::default(),
        typescript: false,
    };
    assert_eq!(host.ask(Request::RunCell(gone)).failure().kind, FailureKind::NotFound);
}

#[test]
fn an_invalid_context_is_refused() {
    let agent = Agent::start();
    let mut host = agent.connect();
    assert_eq!(create(&mut host, "b", Language::Bash).failure().kind, FailureKind::Unsupported);
    let nowhere = ContextSpec {
        id: "c".to_owned(),
        language: Language::Python,
        cwd: Some("/no/such".to_owned()),
        env: path_of_tests(),
        user: None,
    };
    assert_eq!(host.ask(Request::CreateContext(nowhere.clone())).failure().kind, FailureKind::NotFound);
    let missing = ContextSpec { cwd: None, env: [("PATH".to_owned(), "/nonexistent".to_owned())].into(), ..nowhere };
    assert_eq!(host.ask(Request::CreateContext(missing)).failure().kind, FailureKind::Unsupported);
    let Response::Contexts { contexts } = host.ask(Request::ListContexts).response() else { panic!() };
    assert!(contexts.is_empty());
}

#[test]
fn scripts_run_cold() {
    let agent = Agent::start();
    let mut host = agent.connect();
    run_scripts(&mut host);
}

#[test]
fn scripts_run_warm() {
    let agent = Agent::start();
    let mut host = agent.connect();
    for language in [Language::Python, Language::Node] {
        if available(language) {
            warm(&mut host, language);
        }
    }
    run_scripts(&mut host);
    run_scripts(&mut host);
}

fn run_scripts(host: &mut Host) {
    if available(Language::Python) {
        let code = "import sys\nprint(sum(range(101)), sys.argv[1:])\nprint('e', file=sys.stderr)\nsys.exit(3)";
        let heard = script(host, Language::Python, code, &["a b"]);
        assert_eq!((heard.out().as_str(), heard.err().as_str()), ("5050 ['a b']\n", "e\n"));
        let exit = heard.exit();
        assert_eq!((exit.code, exit.reason), (3, ExitReason::Exited));
    }
    if available(Language::Node) {
        let heard = script(host, Language::Node, "console.log(6 * 7, process.argv.slice(2)); process.exit(4)", &["x"]);
        assert_eq!((heard.out().as_str(), heard.exit().code), ("42 [ 'x' ]\n", 4));
    }
}

#[test]
fn a_warm_script_reads_stdin_and_is_killed_with_its_children() {
    if !available(Language::Python) {
        return;
    }
    let agent = Agent::start();
    let mut host = agent.connect();
    warm(&mut host, Language::Python);
    let mut run = spec(Program::Code { language: Language::Python, args: vec![] });
    run.stdin = sandling_protocol::Stdin::Open;
    let stream = host.open_with(Request::Run(run), b"print(input()[::-1])");
    host.data(stream, b"abc\n");
    host.finish(stream);
    assert_eq!(host.end(stream).out(), "cba\n");
    let mut endless = spec(Program::Code { language: Language::Python, args: vec![] });
    endless.timeout_ms = Some(500);
    let code =
        b"import subprocess, time\np = subprocess.Popen(['sleep', '1000'])\nprint(p.pid, flush=True)\ntime.sleep(99)";
    let stream = host.open_with(Request::Run(endless), code);
    let heard = host.end(stream);
    assert_eq!(heard.exit().reason, ExitReason::Timeout);
    let child: u32 = heard.out().trim().parse().unwrap();
    crate::harness::wait_for(|| !crate::harness::is_alive(child));
}

#[test]
fn many_warm_scripts_at_once_all_run() {
    if !available(Language::Python) {
        return;
    }
    let agent = Agent::start();
    let mut host = agent.connect();
    warm(&mut host, Language::Python);
    let streams: Vec<_> = (0..20)
        .map(|i| {
            let run = spec(Program::Code { language: Language::Python, args: vec![] });
            host.open_with(Request::Run(run), format!("import os; print({i}, os.getpid())").as_bytes())
        })
        .collect();
    for (i, stream) in streams.into_iter().enumerate() {
        let heard = host.end(stream);
        assert_eq!(heard.out(), format!("{i} {}\n", heard.pid().unwrap()));
    }
}

#[test]
fn every_live_interpreter_reseeds() {
    if !available(Language::Python) {
        return;
    }
    let agent = Agent::start();
    let mut host = agent.connect();
    warm(&mut host, Language::Python);
    create(&mut host, "c", Language::Python).response();
    let draw = "import random; print(random.random())";
    let seed = "import random; random.seed(1)";
    cell(&mut host, "c", seed);
    let same = cell(&mut host, "c", draw).0.out();
    cell(&mut host, "c", seed);
    let proof = identify(&mut host);
    assert!(proof.interpreters >= 2, "{proof:?}");
    assert_eq!(proof.interpreters, proof.interpreters_reseeded);
    assert_ne!(cell(&mut host, "c", draw).0.out(), same);
    let one = script(&mut host, Language::Python, draw, &[]).out();
    let two = script(&mut host, Language::Python, draw, &[]).out();
    assert_ne!(one, two);
}

#[test]
fn a_failed_import_is_reported_when_warming() {
    if !available(Language::Python) {
        return;
    }
    let agent = Agent::start();
    let mut host = agent.connect();
    identify(&mut host);
    let imports = vec!["json".to_owned(), "no_such_module".to_owned()];
    let failure = host.ask(Request::Warm { language: Language::Python, imports }).failure();
    assert!(failure.message.contains("no_such_module"), "{failure}");
}
