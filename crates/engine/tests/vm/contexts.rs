//! Live interpreters: variables that last, rich results, errors as data, interrupts and restarts.

use std::sync::Arc;
use std::time::Duration;

use sandling_engine::{CellOutput, RunSpec, Sandbox};
use sandling_protocol::{CellReport, CellStatus, ContextSpec, Language};
use serde_json::{Map, Value};

use crate::harness::engine;

pub struct Celled {
    pub stdout: String,
    pub stderr: String,
    pub results: Vec<Map<String, Value>>,
    /// The text of the last result.
    pub value: String,
    pub report: CellReport,
}

pub async fn cell(sandbox: &Arc<Sandbox>, context: &str, code: &str) -> Celled {
    cell_within(sandbox, context, code, None).await
}

async fn cell_within(sandbox: &Arc<Sandbox>, context: &str, code: &str, timeout: Option<Duration>) -> Celled {
    let mut cell = sandbox.run_cell(context, code, timeout, RunSpec::OUTPUT_LIMIT).unwrap();
    let (mut stdout, mut stderr, mut results) = (Vec::new(), Vec::new(), Vec::new());
    let report = loop {
        match cell.next().await.unwrap() {
            CellOutput::Stdout(bytes) => stdout.extend(bytes),
            CellOutput::Stderr(bytes) => stderr.extend(bytes),
            CellOutput::Result(result) | CellOutput::Value(result) => results.push(result),
            CellOutput::Done(report) => break report,
        }
    };
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let value = results.last().and_then(|result| result.get("text/plain")).and_then(Value::as_str);
    let value = value.unwrap_or_default().to_owned();
    Celled { stdout: text(stdout), stderr: text(stderr), results, value, report }
}

async fn context(sandbox: &Arc<Sandbox>, id: &str, language: Language) {
    let spec = ContextSpec { id: id.to_owned(), language, cwd: None, env: Default::default(), user: None };
    sandbox.create_context(spec).await.unwrap();
}

#[tokio::test]
async fn variables_last_and_contexts_do_not_share_them() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    context(&sandbox, "a", Language::Python).await;
    context(&sandbox, "b", Language::Python).await;
    cell(&sandbox, "a", "x = 'größe → 中文'").await;
    let ran = cell(&sandbox, "a", "print(x); import subprocess; subprocess.run(['echo', 'child']); len(x)").await;
    assert_eq!((ran.stdout.as_str(), ran.value.as_str()), ("größe → 中文\nchild\n", "10"), "{}", ran.stderr);
    let other = cell(&sandbox, "b", "x").await;
    assert_eq!(other.report.status, CellStatus::Error);
    assert_eq!(other.report.error.unwrap().name, "NameError");
    engine.close().await;
}

#[tokio::test]
async fn rich_results_come_as_mime_bundles() {
    let engine = engine().await;
    let sandbox = engine.sandbox_of("code-interpreter").await;
    context(&sandbox, "c", Language::Python).await;
    let plot = cell(&sandbox, "c", "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3]);").await;
    let png = plot.results.iter().find_map(|result| result.get("image/png")).and_then(Value::as_str);
    assert!(png.is_some_and(|data| data.starts_with("iVBORw0KGgo")), "{:?}", plot.report);
    let frame = cell(&sandbox, "c", "import pandas\npandas.DataFrame({'a': [1, 2]})").await;
    assert!(frame.results[0]["text/html"].as_str().unwrap().contains("<table"), "{:?}", frame.results);
    context(&sandbox, "n", Language::Node).await;
    cell(&sandbox, "n", "const k = 20; let o = {a: [1, 2], b: 'ü'}").await;
    let node = cell(&sandbox, "n", "console.log('to stdout'); o.a.push(k + 1); o").await;
    assert_eq!(node.stdout, "to stdout\n");
    assert!(node.value.contains("21") && node.value.contains('ü'), "{}", node.value);
    assert!(node.results[0].contains_key("application/json"), "{:?}", node.results);
    let waited = cell(&sandbox, "n", "await new Promise(r => setTimeout(() => r(5), 20))").await;
    assert_eq!(waited.value, "5");
    engine.close().await;
}

#[tokio::test]
async fn a_deadline_or_an_interrupt_stops_a_cell_and_keeps_the_variables() {
    let engine = engine().await;
    let sandbox = engine.sandbox_of("code-interpreter").await;
    for (id, language, set, spin, get) in [
        ("p", Language::Python, "x = 41", "while True: pass", "x + 1"),
        ("n", Language::Node, "var x = 41", "while (true) {}", "x + 1"),
    ] {
        context(&sandbox, id, language).await;
        cell(&sandbox, id, set).await;
        let ran = cell_within(&sandbox, id, spin, Some(Duration::from_secs(1))).await;
        assert_eq!((ran.report.status, ran.report.restarted), (CellStatus::Timeout, false), "{id}");
        assert_eq!(cell(&sandbox, id, get).await.value, "42", "{id}");
        let busy = sandbox.clone();
        let spinning = tokio::spawn(async move { cell(&busy, id, spin).await });
        loop {
            let contexts = sandbox.list_contexts().await.unwrap();
            if contexts.iter().any(|context| context.id == id && context.busy) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The agent has the cell. Whether its code has begun does not matter.
        sandbox.interrupt_context(id).await.unwrap();
        assert_eq!(spinning.await.unwrap().report.status, CellStatus::Interrupted, "{id}");
        assert_eq!(cell(&sandbox, id, get).await.value, "42", "{id}");
    }
    engine.close().await;
}

#[tokio::test]
async fn an_interpreter_that_dies_is_said_to_have_died_and_the_context_goes_on() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    context(&sandbox, "c", Language::Python).await;
    let ran = cell(&sandbox, "c", "x = 1\nprint('last words', flush=True)\nimport os; os._exit(3)").await;
    assert_eq!((ran.report.status, ran.report.restarted), (CellStatus::Died, true));
    assert_eq!(ran.stdout, "last words\n");
    let after = cell(&sandbox, "c", "'x' in globals()").await;
    assert_eq!(after.value, "False");
    sandbox.restart_context("c").await.unwrap();
    sandbox.close_context("c").await.unwrap();
    assert!(sandbox.list_contexts().await.unwrap().is_empty());
    engine.close().await;
}
