//! `sandling doctor`: checks this host and prints the commands that fix what is missing.

use std::process::ExitCode;

use sandling_engine::Home;
use sandling_image::ImageStore;
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

pub async fn doctor(common: &Common, options: &Doctor) -> anyhow::Result<ExitCode> {
    let mut checks = vec![accelerator(common), qemu()];
    checks.extend(sandling_vmm::jail::survey().into_iter().map(layer));
    checks.push(home());
    checks.push(templates());
    checks.extend(unreadable());
    checks.extend(sandling_image::preflight().into_iter().map(|missing| Check {
        name: missing.what,
        verdict: Verdict::Weaker,
        detail: "not installed; needed to build templates".to_owned(),
        fix: Some(missing.fix),
    }));
    let report = Report { ready: checks.iter().all(|check| check.verdict != Verdict::Missing), checks };
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    Ok(ExitCode::from(if report.ready { 0 } else { outcome::REFUSED }))
}

fn print(report: &Report) {
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
    println!("{table}");
    println!("\n{}", if report.ready { "Ready." } else { "Not ready: fix the checks marked MISSING." });
}

fn accelerator(common: &Common) -> Check {
    let name = "accelerator".to_owned();
    match sandling_vmm::accelerator::resolve(common.accelerator) {
        Ok(probe) => {
            Check { name, verdict: Verdict::Ok, detail: format!("{}: {}", probe.accelerator, probe.reason), fix: None }
        }
        Err(error) => Check {
            name,
            verdict: Verdict::Missing,
            detail: outcome::error_message(&error.into()),
            fix: Some("--accelerator auto".to_owned()),
        },
    }
}

fn qemu() -> Check {
    let name = "qemu".to_owned();
    match sandling_vmm::machine::emulator_version() {
        Some(version) => Check { name, verdict: Verdict::Ok, detail: version, fix: None },
        None => Check {
            name,
            verdict: Verdict::Missing,
            detail: "qemu-system-x86_64 is not installed".to_owned(),
            fix: Some("sudo apt-get install --no-install-recommends qemu-system-x86 qemu-utils".to_owned()),
        },
    }
}

fn layer(layer: HostLayer) -> Check {
    let optional = layer.name.starts_with("landlock") || layer.name.starts_with("cgroup");
    let verdict = match (layer.available, optional) {
        (true, _) => Verdict::Ok,
        (false, true) => Verdict::Weaker,
        (false, false) => Verdict::Missing,
    };
    Check { name: layer.name.to_owned(), verdict, detail: layer.detail, fix: layer.fix }
}

fn home() -> Check {
    let name = "home".to_owned();
    let Some(home) = Home::from_environment() else {
        let detail = "neither SANDLING_HOME nor HOME is set".to_owned();
        return Check { name, verdict: Verdict::Missing, detail, fix: Some("export SANDLING_HOME=…".to_owned()) };
    };
    match home.prepare() {
        Ok(()) => Check { name, verdict: Verdict::Ok, detail: home.root().display().to_string(), fix: None },
        Err(error) => Check {
            name,
            verdict: Verdict::Missing,
            detail: format!("cannot write to {}: {error}", home.root().display()),
            fix: Some("export SANDLING_HOME=… (a directory that you can write to)".to_owned()),
        },
    }
}

/// Database rows and template manifests that cannot be read. They are kept, but their objects cannot be used.
fn unreadable() -> Vec<Check> {
    let Some(home) = Home::from_environment() else { return Vec::new() };
    let weaker = |name: String, detail: String, fix: Option<String>| {
        let detail = format!("unreadable: {detail}");
        Check { name, verdict: Verdict::Weaker, detail, fix }
    };
    let rows = match sandling_engine::unreadable_rows(&home.store()) {
        Ok(rows) => rows,
        Err(error) => return vec![weaker("store".to_owned(), outcome::error_message(&error.into()), None)],
    };
    let rows = rows.into_iter().map(|row| {
        let fix =
            format!("run the Sandling version that wrote it, or delete the sandbox with `sandling rm {}`", row.id);
        weaker(format!("{} {}", row.what, row.id), row.why, (row.what == "sandbox").then_some(fix))
    });
    let listed = ImageStore::open(home.templates()).ok().and_then(|store| store.list().ok()).unwrap_or_default();
    let templates = listed.into_iter().filter_map(|found| {
        let error = found.image.err()?;
        let fix = format!("sandling template build {}", found.name);
        Some(weaker(format!("template {}", found.name), outcome::error_message(&error.into()), Some(fix)))
    });
    rows.chain(templates).collect()
}

fn templates() -> Check {
    let name = "templates".to_owned();
    let store = Home::from_environment().and_then(|home| ImageStore::open(home.templates()).ok());
    let listed = store.and_then(|store| store.list().ok()).unwrap_or_default();
    let names: Vec<_> = listed.iter().filter(|found| found.image.is_ok()).map(|found| found.name.to_string()).collect();
    if names.is_empty() {
        let fix = Some("sandling template build base".to_owned());
        return Check { name, verdict: Verdict::Weaker, detail: "no template is built yet".to_owned(), fix };
    }
    Check { name, verdict: Verdict::Ok, detail: names.join(", "), fix: None }
}
