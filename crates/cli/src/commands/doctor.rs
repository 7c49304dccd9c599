//! `sandling doctor`: checks this host and prints the commands that fix what is missing.

use std::fmt::Display;
use std::process::ExitCode;

use sandling_engine::Home;
use sandling_image::{ImageStore, TemplateEntry};
use sandling_vmm::jail::HostLayer;
use serde::Serialize;

use crate::options::{Common, Doctor};
use crate::{outcome, show};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    /// Sandling works without it, but slower or less isolated.
    Weaker,
    /// Sandling cannot run sandboxes until this is fixed.
    Missing,
}

#[derive(Debug, Serialize)]
struct Check {
    name: String,
    verdict: Verdict,
    detail: String,
    fix: Option<String>,
}

#[derive(Debug, Serialize)]
struct Report {
    ready: bool,
    checks: Vec<Check>,
}

impl Check {
    fn new(name: impl Into<String>, verdict: Verdict, detail: impl Into<String>) -> Self {
        Self { name: name.into(), verdict, detail: detail.into(), fix: None }
    }

    fn fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }
}

pub fn doctor(common: &Common, options: &Doctor) -> anyhow::Result<ExitCode> {
    let mut checks = vec![accelerator(common), qemu()];
    checks.extend(sandling_vmm::jail::survey().into_iter().map(layer));
    checks.push(home());
    checks.push(templates());
    checks.extend(unreadable());
    checks.extend(sandling_image::preflight().into_iter().map(|missing| {
        Check::new(missing.what, Verdict::Weaker, "not installed; needed to build templates").fix(missing.fix)
    }));
    let report = Report { ready: checks.iter().all(|check| check.verdict != Verdict::Missing), checks };
    if options.json {
        show::json(&report)?
    } else {
        print(&report)?
    }
    Ok(ExitCode::from(if report.ready { 0 } else { outcome::REFUSED }))
}

fn print(report: &Report) -> anyhow::Result<()> {
    let mut table = show::table(&["", "check", "detail"]);
    for check in &report.checks {
        let mark = match check.verdict {
            Verdict::Ok => "ok",
            Verdict::Weaker => "weaker",
            Verdict::Missing => "MISSING",
        };
        let detail = match &check.fix {
            Some(fix) => format!("{}\nfix: {fix}", check.detail),
            None => check.detail.clone(),
        };
        table.add_row([mark, &check.name, &detail]);
    }
    let summary = if report.ready { "Ready." } else { "Not ready: fix the checks marked MISSING." };
    show::line(format_args!("{table}\n\n{summary}"))
}

fn accelerator(common: &Common) -> Check {
    match sandling_vmm::accelerator::resolve(common.accelerator) {
        Ok(probe) => Check::new("accelerator", Verdict::Ok, format!("{}: {}", probe.accelerator, probe.reason)),
        Err(error) => Check::new("accelerator", Verdict::Missing, outcome::chain(&error)).fix("--accelerator auto"),
    }
}

fn qemu() -> Check {
    match sandling_vmm::machine::emulator_version() {
        Some(version) => Check::new("qemu", Verdict::Ok, version),
        None => Check::new("qemu", Verdict::Missing, "qemu-system-x86_64 is not installed")
            .fix("sudo apt-get install --no-install-recommends qemu-system-x86 qemu-utils"),
    }
}

fn layer(layer: HostLayer) -> Check {
    let optional = layer.name.starts_with("landlock") || layer.name.starts_with("cgroup");
    let verdict = match (layer.available, optional) {
        (true, _) => Verdict::Ok,
        (false, true) => Verdict::Weaker,
        (false, false) => Verdict::Missing,
    };
    Check { fix: layer.fix, ..Check::new(layer.name, verdict, layer.detail) }
}

fn home() -> Check {
    let Some(home) = Home::from_environment() else {
        let detail = "neither SANDLING_HOME nor HOME is set";
        return Check::new("home", Verdict::Missing, detail).fix("export SANDLING_HOME=…");
    };
    let root = home.root().display();
    match home.prepare() {
        Ok(()) => Check::new("home", Verdict::Ok, root.to_string()),
        Err(error) => Check::new("home", Verdict::Missing, format!("cannot write to {root}: {error}"))
            .fix("export SANDLING_HOME=… (a directory that you can write to)"),
    }
}

/// Database rows and template manifests that cannot be read. They are kept, but their objects cannot be used.
fn unreadable() -> Vec<Check> {
    let Some(home) = Home::from_environment() else { return Vec::new() };
    let weaker = |name: String, why: &dyn Display| Check::new(name, Verdict::Weaker, format!("unreadable: {why}"));
    let rows = match sandling_engine::unreadable_rows(&home.store()) {
        Ok(rows) => rows,
        Err(error) => return vec![weaker("store".to_owned(), &outcome::chain(&error))],
    };
    let rows = rows.into_iter().map(|row| {
        let check = weaker(format!("{} {}", row.what, row.id), &row.why);
        match row.what {
            "sandbox" => check.fix(format!(
                "run the Sandling version that wrote it, or delete the sandbox with `sandling rm {}`",
                row.id
            )),
            _ => check,
        }
    });
    let templates = listed_templates().into_iter().filter_map(|found| {
        let check = weaker(format!("template {}", found.name), &outcome::chain(&found.image.err()?));
        Some(check.fix(format!("sandling template build {}", found.name)))
    });
    rows.chain(templates).collect()
}

fn listed_templates() -> Vec<TemplateEntry> {
    let store = Home::from_environment().and_then(|home| ImageStore::open(home.templates()).ok());
    store.and_then(|store| store.list().ok()).unwrap_or_default()
}

fn templates() -> Check {
    let built = listed_templates().into_iter().filter(|found| found.image.is_ok());
    let names: Vec<_> = built.map(|found| found.name.to_string()).collect();
    if names.is_empty() {
        let check = Check::new("templates", Verdict::Weaker, "no template is built yet");
        return check.fix("sandling template build base");
    }
    Check::new("templates", Verdict::Ok, names.join(", "))
}
