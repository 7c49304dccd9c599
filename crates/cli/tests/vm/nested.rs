//! Tests KVM on any host: QEMU emulates a machine with AMD's virtualization, and `sandling` runs in it with KVM.
//!
//! ```text
//!   this host ── QEMU, emulating a processor with SVM ── Debian's kernel, kvm-amd ── sandling ── jailed QEMU, KVM
//! ```
//!
//! Slow, and not a benchmark. `nested/drive.sh` runs the steps inside; this file checks their results.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sandling_image::{BuildOptions, Image, ImageStore, Recipe, Warm, resolve};
use sandling_protocol::Language;
use serde_json::Value;
use tempfile::TempDir;

use crate::SANDLING;
use crate::harness::templates;

/// Takes about two minutes on an idle machine with two slow cores, and several times that on a busy one.
const TIMEOUT: Duration = Duration::from_secs(420);
/// Retries, because the emulated processor with SVM sometimes hangs.
const ATTEMPTS: usize = 3;

const TEMPLATE: &str = "nested";

/// `la57` would only make emulated page walks longer. One processor, because two livelock on a busy host.
const OUTER_CPU: &str = "max,la57=off";
const OUTER_MEMORY_MIB: &str = "2048";

#[test]
fn kvm_bakes_and_restores_a_template_and_runs_code() {
    let image = template();
    let work = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let kernel = make(work.path(), &image);
    let mut results = run_outer(work.path(), &kernel);
    for _ in 1..ATTEMPTS {
        results = results.or_else(|_| run_outer(work.path(), &kernel));
    }
    let results = results.unwrap();

    let doctor = results.json("doctor");
    let accelerator = doctor["checks"].as_array().unwrap().iter().find(|check| check["name"] == "accelerator");
    assert!(accelerator.unwrap()["detail"].as_str().unwrap().starts_with("kvm: KVM ran"), "{doctor:#}");

    for (step, printed) in [("bake", "baked\n"), ("python", "42\n"), ("somebody", "42\n")] {
        let report = results.json(step);
        assert_eq!((&report["stdout"], &report["exit_code"]), (&printed.into(), &0.into()), "{step}: {report:#}");
        assert_eq!(report["sandbox"]["boot_mode"], "snapshot", "{step}: {report:#}");
        assert_whole(&report["sandbox"]["boundary"]);
    }
    let limited = &results.json("python")["sandbox"]["boundary"]["cgroup"];
    assert_eq!((&limited["version"], limited["controllers"].as_array().unwrap().len()), (&"v2".into(), 4));

    // The guest detected KVM, its exit code was forwarded, and its clock matches the host's.
    assert_eq!(results.text("seen.code"), "7\n", "{}", results.text("seen.err"));
    let seen = results.text("seen.out");
    let (hypervisor, clock) = seen.split_once('\n').unwrap();
    assert_eq!(hypervisor, "Hypervisor detected: KVM");
    let seconds = |text: &str| text.trim().parse::<u64>().unwrap();
    let (before, after) = (seconds(&results.text("seen.before")), seconds(&results.text("seen.after")));
    assert!((before..=after).contains(&seconds(clock)), "{clock} is not within {before} and {after}");

    assert_eq!(results.text("bakes").lines().count(), 1, "all runs share one bake: {}", results.text("bakes"));
}

fn assert_whole(boundary: &Value) {
    assert_eq!(boundary["accelerator"], "kvm");
    for layer in [
        "user_namespace",
        "mount_namespace",
        "network_namespace",
        "pid_namespace",
        "ipc_namespace",
        "unprivileged_user",
        "no_capabilities",
        "no_new_privs",
        "seccomp",
    ] {
        assert_eq!(boundary[layer], true, "{layer} in {boundary:#}");
    }
    assert_eq!(boundary["landlock"], "full");
}

/// A small template with only Python, because the outer machine reads all of it for verification.
fn template() -> Image {
    let store = ImageStore::with_launcher(templates().with_file_name("nested-templates"), SANDLING).unwrap();
    let recipe = Recipe {
        name: TEMPLATE.parse().unwrap(),
        description: "Python and nothing else".to_owned(),
        packages: ["python3".to_owned()].into(),
        pip: BTreeSet::new(),
        disk_mib: 512,
        memory_mib: 256,
        warm: vec![Warm { language: Language::Python, imports: vec!["json".to_owned()] }],
        ..resolve("base").unwrap().recipe
    };
    store.ensure(&recipe, &BuildOptions::default(), &mut |_| ()).unwrap()
}

/// Creates the disk and initrd in `work`, and returns the path of the outer kernel.
fn make(work: &Path, image: &Image) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../test-kernel");
    let kernel = output(Command::new(here.join("../../scripts/test_kernel.sh")).arg(place));
    let kernel = PathBuf::from(kernel.trim());
    let manifest = &image.manifest;
    output(
        Command::new(here.join("tests/vm/nested/make.sh"))
            .args([work, Path::new(SANDLING), &kernel])
            .arg(templates().with_file_name("nested-templates"))
            .arg(format!("names/{TEMPLATE}.json"))
            .arg(format!("images/{}/manifest.json", image.id))
            .arg(format!("roots/{}", manifest.root.id))
            .arg(format!("kernels/{}", manifest.kernel.id))
            .arg(format!("initrds/{}", manifest.initrd.id)),
    );
    let mut boot = fs::read_dir(kernel.join("boot")).unwrap().flatten();
    boot.find(|entry| entry.file_name().to_string_lossy().starts_with("vmlinuz-")).unwrap().path()
}

fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The outer QEMU. Dropping it kills the process.
struct Outer(Child);

impl Drop for Outer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the outer machine; writes to its disk are discarded. After a timeout, returns the console output as an error.
fn run_outer(work: &Path, kernel: &Path) -> Result<Results, String> {
    let console = work.join("console");
    let drive = |file: &str| format!("if=virtio,file={},format=raw,cache=unsafe", work.join(file).display());
    let disk = format!("{},snapshot=on", drive("disk.img"));
    // `setpriv` kills QEMU if the test process is killed.
    let child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
        .args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio"])
        .args(["-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", OUTER_CPU, "-m", OUTER_MEMORY_MIB])
        .args(["-drive", &disk, "-drive", &drive("results.tar")])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(work.join("initrd.cpio"))
        .args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check"])
        .stdin(Stdio::null())
        .stdout(File::create(&console).unwrap())
        .stderr(File::create(work.join("qemu.log")).unwrap())
        .spawn()
        .unwrap();
    let mut outer = Outer(child);
    let deadline = Instant::now() + TIMEOUT;
    while outer.0.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            return Err(format!("not finished within {TIMEOUT:?}: {}", read(&console)));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let results = Results { dir: work.join("results"), console };
    fs::create_dir(&results.dir).unwrap();
    let unpacked = Command::new("tar").arg("-xf").arg(work.join("results.tar")).arg("-C").arg(&results.dir).status();
    assert!(
        unpacked.unwrap().success() && results.dir.join("bakes").exists(),
        "no results: {}",
        read(&results.console)
    );
    Ok(results)
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// The output files of the steps.
struct Results {
    dir: PathBuf,
    console: PathBuf,
}

impl Results {
    fn text(&self, name: &str) -> String {
        read(&self.dir.join(name))
    }

    fn json(&self, step: &str) -> Value {
        let said = self.text(&format!("{step}.out"));
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{step}: {error}: {said}\n{}", read(&self.console)))
    }
}
