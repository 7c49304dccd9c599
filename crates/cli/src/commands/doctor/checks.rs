//! The checks of `sandling doctor`: looks at this host and prints the commands that fix what is missing.

use std::fmt::Display;
use std::process::ExitCode;

use sandling_engine::{Home, with_causes};
use sandling_image::{ImageStore, TemplateEntry};
use sandling_vmm::accelerator::{Accelerator, AcceleratorChoice};
use sandling_vmm::jail::HostLayer;
use sandling_wire::{DEFAULT_TEMPLATE, WideMode};
use serde::Serialize;

use super::{attack, fleet};
use crate::options::{Common, Doctor};
use crate::{outcome, show};

const ACCELERATOR: &str = "accelerator";
const TEMPLATES: &str = "templates";
const BUILD: &str = "sandling template build";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Ok,
    /// Sandling works without it, but slower or less isolated.
    Weaker,
    /// Sandling cannot run sandboxes until this is fixed.
    Missing,
}

#[derive(Debug, Serialize)]
pub(super) struct Check {
    name: String,
    verdict: Verdict,
    pub(super) detail: String,
    fix: Option<String>,
}

#[derive(Debug, Serialize)]
struct Report {
    ready: bool,
    works_now: String,
    checks: Vec<Check>,
}

impl Check {
    pub(super) fn new(name: impl Into<String>, verdict: Verdict, detail: impl Into<String>) -> Self {
        Self { name: name.into(), verdict, detail: detail.into(), fix: None }
    }

    pub(super) fn fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }
}

pub async fn doctor(common: &Common, options: &Doctor) -> anyhow::Result<ExitCode> {
    if options.attack {
        return attack::attack(common, options).await;
    }
    let mut checks = vec![accelerator(common), qemu()];
    checks.extend(sandling_vmm::jail::survey().into_iter().map(layer));
    checks.push(home());
    checks.push(templates());
    checks.extend(unreadable());
    checks.extend(secrets_in_any_header());
    checks.extend(fleet::checks().await);
    checks.extend(sandling_image::preflight().into_iter().map(|missing| {
        Check::new(missing.what, Verdict::Weaker, "not installed; needed to build templates").fix(missing.fix)
    }));
    let ready = checks.iter().all(|check| check.verdict != Verdict::Missing);
    let report = Report { ready, works_now: works_now(&checks), checks };
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
    show::line(format_args!("{table}\n\n{}", report.works_now))
}

/// One line that says what works now.
fn works_now(checks: &[Check]) -> String {
    let missing: Vec<&str> =
        checks.iter().filter(|check| check.verdict == Verdict::Missing).map(|check| check.name.as_str()).collect();
    let is_slow = checks.iter().any(|check| check.name == ACCELERATOR && check.verdict != Verdict::Ok);
    match missing.as_slice() {
        [] if is_slow => "Ready: sandboxes work on this host, slowly, because there is no KVM.".to_owned(),
        [] => "Ready: sandboxes work on this host.".to_owned(),
        [TEMPLATES] => {
            format!("Not ready: no template is built. After `{BUILD} {DEFAULT_TEMPLATE}`, sandboxes work on this host.")
        }
        names => format!("Not ready: fix {}, marked MISSING, and run `sandling doctor` again.", names.join(", ")),
    }
}

fn accelerator(common: &Common) -> Check {
    match sandling_vmm::accelerator::resolve(common.accelerator) {
        Ok(probe) if probe.accelerator == Accelerator::Tcg && common.accelerator == AcceleratorChoice::Auto => {
            let detail = format!(
                "{}: {}. Sandboxes work with software emulation, but programs in them run about ten times slower than with \
                 KVM, and templates take minutes longer to build",
                probe.accelerator, probe.reason
            );
            Check::new(ACCELERATOR, Verdict::Weaker, detail).fix(how_to_get_kvm(&KvmState::of_host()))
        }
        Ok(probe) => Check::new(ACCELERATOR, Verdict::Ok, format!("{}: {}", probe.accelerator, probe.reason)),
        Err(error) => Check::new(ACCELERATOR, Verdict::Missing, with_causes(&error)).fix("--accelerator auto"),
    }
}

/// What the host says about KVM.
struct KvmState {
    has_device: bool,
    is_usable: bool,
    /// `vmx`, `svm` or neither.
    processor: Option<&'static str>,
}

impl KvmState {
    fn of_host() -> Self {
        let device = std::path::Path::new("/dev/kvm");
        let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            has_device: device.exists(),
            is_usable: std::fs::File::options().read(true).write(true).open(device).is_ok(),
            processor: ["vmx", "svm"].into_iter().find(|flag| flags.split_whitespace().any(|word| word == *flag)),
        }
    }
}

fn how_to_get_kvm(state: &KvmState) -> String {
    match state {
        KvmState { has_device: true, is_usable: false, .. } => {
            "sudo usermod -aG kvm $USER, then log in again; /dev/kvm is there, but you may not open it".to_owned()
        }
        KvmState { has_device: false, processor: Some("vmx"), .. } => "sudo modprobe kvm_intel".to_owned(),
        KvmState { has_device: false, processor: Some(_), .. } => "sudo modprobe kvm_amd".to_owned(),
        KvmState { has_device: false, processor: None, .. } => {
            "use a physical host, or a virtual machine with nested virtualization. Enable it where the machine is configured: \
             AWS *.metal, Google Cloud --enable-nested-virtualization, Azure Dv3 and newer, QEMU -cpu host"
                .to_owned()
        }
        KvmState { has_device: true, is_usable: true, .. } => {
            "KVM can be opened but does not run a guest; if this is a virtual machine, enable nested virtualization in its \
             host"
                .to_owned()
        }
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
    let optional = ["landlock", "cgroup", "own users"].contains(&layer.name);
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
    let prepared = home.prepare().map(|()| home.wide_modes());
    match prepared {
        Ok(wide) if wide.is_empty() => Check::new("home", Verdict::Ok, root.to_string()),
        Ok(wide) => Check::new("home", Verdict::Weaker, wide_modes(&wide))
            .fix("start Sandling once: it repairs the modes of its files at every start"),
        Err(error) => Check::new("home", Verdict::Missing, format!("cannot write to {root}: {error}"))
            .fix("export SANDLING_HOME=… (a directory that you can write to)"),
    }
}

/// Says which files of the home others can use, and how many more there are.
fn wide_modes(wide: &[WideMode]) -> String {
    let shown = wide.iter().take(3).map(ToString::to_string).collect::<Vec<_>>().join("; ");
    match wide.len().saturating_sub(3) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}

/// Database rows and template manifests that cannot be read. They are kept, but their objects cannot be used.
fn unreadable() -> Vec<Check> {
    let Some(home) = Home::from_environment() else { return Vec::new() };
    let weaker = |name: String, why: &dyn Display| Check::new(name, Verdict::Weaker, format!("unreadable: {why}"));
    let rows = match sandling_engine::unreadable_rows(&home.store()) {
        Ok(rows) => rows,
        Err(error) => return vec![weaker("store".to_owned(), &with_causes(&error))],
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
        let check = weaker(format!("template {}", found.name), &with_causes(&found.image.err()?));
        Some(check.fix(format!("{BUILD} {}", found.name)))
    });
    rows.chain(templates).collect()
}

/// Secrets that an older version stored without placements.
fn secrets_in_any_header() -> impl Iterator<Item = Check> {
    let store = Home::from_environment().map(|home| home.store());
    let names = store.and_then(|store| sandling_engine::secrets_in_any_header(&store).ok()).unwrap_or_default();
    names.into_iter().map(|name| {
        let detail = "may be placed in any header of requests to its hosts; an older version stored it";
        let fix = format!("store it again: sandling secret set {name} --host … (--header, --query or --basic)");
        Check::new(format!("secret {name}"), Verdict::Weaker, detail).fix(fix)
    })
}

fn listed_templates() -> Vec<TemplateEntry> {
    let store = Home::from_environment().and_then(|home| ImageStore::open(home.templates()).ok());
    store.and_then(|store| store.list().ok()).unwrap_or_default()
}

fn templates() -> Check {
    let built = listed_templates().into_iter().filter(|found| found.image.is_ok());
    let names: Vec<_> = built.map(|found| found.name.to_string()).collect();
    if names.is_empty() {
        return Check::new(TEMPLATES, Verdict::Missing, "no template is built yet, so no sandbox can start")
            .fix(format!("{BUILD} {DEFAULT_TEMPLATE}"));
    }
    Check::new(TEMPLATES, Verdict::Ok, names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_says_what_works_now() {
        let check = |name: &str, verdict| Check::new(name, verdict, "");
        let all = |accelerator, templates, qemu| {
            works_now(&[check(ACCELERATOR, accelerator), check(TEMPLATES, templates), check("qemu", qemu)])
        };
        let (ok, weaker, missing) = (Verdict::Ok, Verdict::Weaker, Verdict::Missing);
        assert_eq!(all(ok, ok, ok), "Ready: sandboxes work on this host.");
        assert!(all(weaker, ok, ok).contains("slowly, because there is no KVM"));
        assert!(all(weaker, missing, ok).contains("After `sandling template build code-interpreter`"));
        assert!(all(ok, missing, missing).contains("fix templates, qemu"));
    }

    #[test]
    fn the_way_to_kvm_depends_on_the_host() {
        let fix = |has_device, is_usable, processor| how_to_get_kvm(&KvmState { has_device, is_usable, processor });
        assert!(fix(true, false, Some("vmx")).contains("usermod -aG kvm"));
        assert!(fix(false, false, Some("svm")).contains("kvm_amd"));
        assert!(fix(false, false, None).contains("nested virtualization"));
        assert!(fix(true, true, None).contains("does not run a guest"));
    }
}
