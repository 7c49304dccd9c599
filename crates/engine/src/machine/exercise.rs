//! Exercising a machine: it does each kind of thing that users will ask for, so that emulated code is translated already.

use std::time::Duration;

use sandling_protocol::{CellSpec, ContextSpec, ExecSpec, FailureKind, Language, OnLimit, Program, Request, Stdin};

use crate::link::{Link, LinkError};

/// How often each thing is done.
pub(super) const EXERCISES: u32 = 2;
/// The commands that agents most often run first. Those that a template lacks fail without harm.
const ORDINARY: &str = "cd /tmp; for round in 1 2; do ls -la /usr/bin | grep -c root; head -3 /etc/os-release | wc -l; \
    mkdir exercise; cd exercise; echo 'print(1)' >a.py; cat a.py; find . -name '*.py' | xargs grep -n print; \
    grep -rn print . | sort | sed s/a/b/ | awk '{ print $1 }' | tail -1; git init -q; git add -A; git status; \
    git -c user.name=a -c user.email=a@b commit -qm a; git log --oneline; git diff; cd ..; rm -rf exercise; env; uname -a; \
    python3 -c 'import json, os, re, subprocess, sys; print(json.dumps(sys.path))'; node -e 'console.log(1)'; done \
    >/dev/null 2>&1; pip --version >/dev/null 2>&1; true";
/// The ordinary commands are many, and slow under emulation on a busy host.
const RUN_WITHIN_MS: u64 = 300_000;
/// A spare interpreter of a large template takes seconds to make on a busy host.
const SETTLED_WITHIN: Duration = Duration::from_secs(120);

/// Runs each language `rounds` times. The guest keeps no trace of it.
pub(super) async fn exercise(link: &Link, languages: &[Language], rounds: u32) -> Result<(), LinkError> {
    for round in 0..rounds {
        let shell = Program::Argv(vec!["/bin/true".to_owned()]);
        run_if_present(link, &format!("exercise-{round}-true"), shell).await?;
        for &language in languages {
            let program = Program::Code { language, args: Vec::new() };
            run_once(link, &format!("exercise-{round}-{language:?}"), program, exercise_code(language)).await?;
            link.call_within(SETTLED_WITHIN, Request::Settle { language }).await?;
        }
        // Node takes too long to make a new spare interpreter.
        if languages.contains(&Language::Python) {
            run_cell_once(link, Language::Python).await?;
        }
    }
    Ok(())
}

/// Runs the commands of an ordinary first session.
pub(super) async fn exercise_ordinary(link: &Link) -> Result<(), LinkError> {
    for line in ["echo", ORDINARY, "echo"] {
        run_if_present(link, "exercise-ordinary", Program::Shell(line.to_owned())).await?;
    }
    Ok(())
}

async fn run_cell_once(link: &Link, language: Language) -> Result<(), LinkError> {
    let id = "exercise".to_owned();
    let context = ContextSpec { id: id.clone(), language, cwd: None, env: Default::default(), user: None };
    let cell = CellSpec {
        context: id.clone(),
        timeout_ms: Some(60_000),
        output_limit: 1 << 16,
        env: Default::default(),
        typescript: false,
    };
    let making = link.open(Request::CreateContext(context), &[])?;
    let running = link.open(Request::RunCell(cell), b"1 + 1")?;
    making.drain(|_, _| {}).await?;
    running.drain(|_, _| {}).await?;
    link.call(Request::CloseContext { context: id }).await?;
    link.call_within(SETTLED_WITHIN, Request::Settle { language }).await.map(drop)
}

fn exercise_code(language: Language) -> &'static [u8] {
    match language {
        Language::Python => b"print(1 + 1)",
        Language::Node => b"console.log(1 + 1)",
        Language::Bash => b"echo $((1 + 1))",
    }
}

/// Runs a program, unless the template lacks it: an OCI image may have a single binary.
async fn run_if_present(link: &Link, id: &str, program: Program) -> Result<(), LinkError> {
    match run_once(link, id, program, b"").await {
        Err(LinkError::Failed(failure)) if failure.kind == FailureKind::NotFound => Ok(()),
        done => done,
    }
}

async fn run_once(link: &Link, id: &str, program: Program, code: &[u8]) -> Result<(), LinkError> {
    let spec = ExecSpec {
        id: id.to_owned(),
        program,
        env: Default::default(),
        cwd: None,
        user: None,
        timeout_ms: Some(RUN_WITHIN_MS),
        output_limit: 1 << 16,
        on_limit: OnLimit::Kill,
        stdin: Stdin::Closed,
        terminal: None,
    };
    link.open(Request::Run(spec), code)?.drain(|_, _| {}).await?;
    link.call(Request::Forget { exec: id.to_owned() }).await.map(drop)
}
