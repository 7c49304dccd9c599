//! What the first command on a host needs: packages of the system, and a built-in template.

use std::io::{self, BufRead, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, bail};
use sandling_engine::{DEFAULT_WORKSPACE, Engine, TemplateError, TemplateSummary};
use sandling_image::{BuildOptions, LoadError, Recipe};
use sandling_vmm::accelerator::Accelerator;
use sandling_vmm::machine::MachineConfig;

use crate::show;

/// The packages with QEMU.
const EMULATOR: [&str; 2] = ["qemu-system-x86", "qemu-utils"];

/// What a command is about to do.
#[derive(Clone, Copy)]
pub enum Purpose {
    RunMachines,
    BuildTemplates,
}

/// Offers to install the Debian packages that Sandling needs and this host lacks. Without a terminal to ask on, the
/// error says how to install them.
pub fn install_missing_packages(purpose: Purpose) -> anyhow::Result<()> {
    let packages = missing_packages(purpose);
    if packages.is_empty() {
        return Ok(());
    }
    let needs = format!("Sandling needs packages that are not installed: {}", packages.join(", "));
    if !Path::new("/usr/bin/apt-get").exists() {
        bail!("{needs}; install them, or what your distribution calls them, and try again");
    }
    let command = install_command(&packages, rustix::process::geteuid().is_root());
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        bail!("{needs}; install them and try again: {command}");
    }
    eprint!("{needs}\nInstall them now with `{command}`? [Y/n] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    if !matches!(answer.trim(), "" | "y" | "Y" | "yes") {
        bail!("nothing was installed");
    }
    // What apt prints is no output of the command that the user gave.
    let stderr = io::stderr().as_fd().try_clone_to_owned()?;
    let status = Command::new("sh").args(["-c", &command]).stdout(stderr).status().context("cannot start `sh`")?;
    if !status.success() || !missing_packages(purpose).is_empty() {
        bail!("the packages were not installed ({status}); install them and try again: {command}");
    }
    Ok(())
}

fn missing_packages(purpose: Purpose) -> Vec<&'static str> {
    let emulator = if Path::new(MachineConfig::QEMU).exists() { &[][..] } else { &EMULATOR };
    let mut packages = emulator.to_vec();
    // A host without QEMU has no template either, and one question is enough.
    if matches!(purpose, Purpose::BuildTemplates) || !packages.is_empty() {
        packages.extend(sandling_image::preflight().into_iter().filter_map(|missing| missing.package));
    }
    packages.dedup();
    packages
}

fn install_command(packages: &[&str], is_root: bool) -> String {
    let sudo = if is_root { "" } else { "sudo " };
    format!("{sudo}apt-get update && {sudo}apt-get install -y --no-install-recommends {}", packages.join(" "))
}

/// Builds a built-in template that is not built yet.
pub async fn build_if_missing(engine: &Arc<Engine>, name: &str) -> anyhow::Result<()> {
    let Ok(built_in) = sandling_image::resolve(name) else { return Ok(()) };
    let found = engine.machines().inspect_template(DEFAULT_WORKSPACE, name);
    if !matches!(found, Err(TemplateError::Load(LoadError::NotBuilt { .. }))) {
        return Ok(());
    }
    install_missing_packages(Purpose::BuildTemplates)?;
    let takes = match engine.probe().accelerator {
        Accelerator::Kvm => "a minute or two",
        Accelerator::Tcg => "two to five minutes without KVM",
    };
    eprintln!("sandling: building the template `{}`, once; it takes {takes}", built_in.recipe.name);
    build(engine, built_in.recipe, BuildOptions::default()).await?;
    Ok(())
}

/// Builds a template and shows its steps.
pub async fn build(engine: &Arc<Engine>, recipe: Recipe, options: BuildOptions) -> anyhow::Result<TemplateSummary> {
    let progress = Arc::new(show::Progress::new());
    let steps = progress.clone();
    let built = engine.machines().build_template(recipe, options, move |step| steps.step(&step)).await;
    progress.done();
    Ok(built?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_installs_all_packages() {
        assert_eq!(
            install_command(&["qemu-system-x86", "mmdebstrap"], false),
            "sudo apt-get update && sudo apt-get install -y --no-install-recommends qemu-system-x86 mmdebstrap"
        );
        assert!(install_command(&["e2fsprogs"], true).starts_with("apt-get update && apt-get install"));
    }
}
