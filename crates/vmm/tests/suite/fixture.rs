//! What the tests share: a kernel, a test guest, and one machine that was booted and saved.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sandling_vmm::accelerator::Accelerator;
use sandling_vmm::disk::{DiskFormat, create_overlay};
use sandling_vmm::jail::{JailConfig, MachineDir};
use sandling_vmm::machine::{Disk, Hardware, Layer, Machine, MachineConfig, Start};
use sandling_vmm::memory::{Memory, place_library};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

pub const DISK_BYTES: u64 = 64 << 20;
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The variable that names another template's directory, for a test that runs as another user.
pub const TEMPLATE_VARIABLE: &str = "SANDLING_TEST_TEMPLATE";

/// The variable that names a working directory, for a test that is a process of another test.
pub const WORK_VARIABLE: &str = "SANDLING_TEST_WORK";

/// Where everything of this run is; what earlier runs left is removed.
pub static WORK: LazyLock<PathBuf> = LazyLock::new(|| {
    if let Some(work) = std::env::var_os(WORK_VARIABLE) {
        return work.into();
    }
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix("vmm-").and_then(|pid| pid.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let work = place.join(format!("vmm-{}", std::process::id()));
    fs::create_dir_all(&work).unwrap();
    work
});

/// A machine that answered, was stopped and saved.
pub struct Template {
    pub dir: PathBuf,
}

impl Template {
    pub fn memory(&self) -> PathBuf {
        self.dir.join("memory")
    }

    pub fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    pub fn disk(&self) -> Disk {
        let layer = |name: &str| Layer { name: name.to_owned(), path: self.dir.join(name) };
        Disk { overlay: "disk.qcow2".to_owned(), backing: vec![layer("root"), layer("base")] }
    }
}

pub static TEMPLATE: LazyLock<Template> = LazyLock::new(|| match std::env::var_os(TEMPLATE_VARIABLE) {
    Some(dir) => Template { dir: dir.into() },
    // On a thread of its own: the tests run inside a runtime, where no other can be entered.
    None => std::thread::spawn(|| runtime().block_on(bake())).join().expect("the template"),
});

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

async fn bake() -> Template {
    let dir = WORK.join("template");
    fs::create_dir_all(&dir).unwrap();
    let (kernel, initrd) = (kernel(), initrd());
    fs::File::create(dir.join("base")).unwrap().set_len(DISK_BYTES).unwrap();
    let machine_dir = MachineDir::new(WORK.join("bake"));
    machine_dir.create().unwrap();
    create_overlay(&machine_dir.files().join("root"), "/layers/base", DiskFormat::Raw, DISK_BYTES).await.unwrap();
    let base = Layer { name: "base".to_owned(), path: dir.join("base") };
    let command_line = "console=ttyS0 quiet panic=-1 reboot=t".to_owned();
    let start = Start::Boot { kernel, initrd, command_line, over: None };
    let disk = Disk { overlay: "root".to_owned(), backing: vec![base] };
    let machine = Machine::boot(config_in(machine_dir.clone(), start, disk)).await.unwrap();
    let mut guest = Guest::connect(&machine).await;
    assert_eq!(guest.line().await, "READY");
    assert_eq!(guest.ask("write from the template").await, "written");
    machine.stop().await.unwrap();
    machine.save_state("state").await.unwrap();
    machine.quit().await.unwrap();
    for name in ["memory", "state", "root"] {
        fs::rename(machine_dir.files().join(name), dir.join(name)).unwrap();
    }
    Template { dir }
}

/// The template's memory, without layers.
pub fn base_memory() -> Memory {
    Memory::base(TEMPLATE.memory(), place_library(&WORK).unwrap())
}

/// The configuration of a machine restored from the template, in a fresh directory with a fresh overlay.
pub async fn restore_config(name: &str) -> MachineConfig {
    let dir = MachineDir::new(WORK.join(name));
    let start = Start::Restore { memory: base_memory(), state: TEMPLATE.state(), cached: None };
    let config = config_in(dir, start, TEMPLATE.disk());
    config.dir.create().unwrap();
    let overlay = config.dir.files().join(&config.disk.overlay);
    create_overlay(&overlay, "/layers/root", DiskFormat::Qcow2, DISK_BYTES).await.unwrap();
    config
}

fn config_in(dir: MachineDir, start: Start, disk: Disk) -> MachineConfig {
    let accelerator = Accelerator::Tcg;
    let cpu_model = accelerator.default_cpu_model().to_owned();
    MachineConfig {
        dir,
        hardware: Hardware { accelerator, cpu_model, vcpus: 1, memory_mib: 256 },
        start,
        disk,
        jail: jail_config(),
        qemu: MachineConfig::QEMU.into(),
        deadline_ms: None,
        plugs: Vec::new(),
    }
}

pub fn jail_config() -> JailConfig {
    let launcher = match std::env::var_os("SANDLING_TEST_LAUNCHER") {
        Some(launcher) => launcher.into(),
        None => env!("CARGO_BIN_EXE_sandling-jail").into(),
    };
    JailConfig { launcher, ..JailConfig::new().unwrap() }
}

/// Restores a machine from the template and lets it run.
pub async fn running(name: &str) -> (Machine, Guest) {
    let machine = Machine::restore(restore_config(name).await).await.unwrap();
    machine.cont().await.unwrap();
    let guest = Guest::connect(&machine).await;
    (machine, guest)
}

/// The test guest, seen from its control port.
pub struct Guest {
    stream: BufReader<UnixStream>,
}

impl Guest {
    pub async fn connect(machine: &Machine) -> Self {
        Self { stream: BufReader::new(machine.connect_control().await.unwrap()) }
    }

    pub async fn line(&mut self) -> String {
        let mut line = String::new();
        tokio::time::timeout(PATIENCE, self.stream.read_line(&mut line)).await.expect("an answer in time").unwrap();
        line.trim().to_owned()
    }

    pub async fn tell(&mut self, question: &str) {
        self.stream.write_all(format!("{question}\n").as_bytes()).await.unwrap();
    }

    pub async fn ask(&mut self, question: &str) -> String {
        self.tell(question).await;
        self.line().await
    }
}

pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Waits for something to become true.
pub fn eventually(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let given_up = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < given_up, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn is_alive(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// What a process has open; what it closes while this looks is left out.
pub fn open_files(pid: i32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let link = |entry: fs::DirEntry| match fs::read_link(entry.path()) {
        Ok(target) => Some(target.to_string_lossy().into_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("{}: {error}", entry.path().display()),
    };
    let open: Vec<_> = entries.filter_map(link).collect();
    assert!(!open.is_empty(), "{pid} has nothing open");
    open
}

/// Whether another process has this directory open, as a supervisor has its own.
pub fn any_process_holds(directory: &Path) -> bool {
    let directory = directory.canonicalize().unwrap();
    let own = std::process::id().to_string();
    let others = fs::read_dir("/proc").unwrap().flatten().filter(|process| *process.file_name() != *own);
    let mut descriptors = others.flat_map(|process| fs::read_dir(process.path().join("fd")).into_iter().flatten());
    descriptors.any(|fd| fd.is_ok_and(|fd| fs::read_link(fd.path()).is_ok_and(|target| target == directory)))
}

/// A vmlinuz, and beside it the modules that belong to it.
fn kernel() -> PathBuf {
    match std::env::var_os("SANDLING_TEST_KERNEL") {
        Some(kernel) => kernel.into(),
        None => find(&unpacked_kernel().join("boot"), "vmlinuz-").expect("a kernel in the package"),
    }
}

/// Debian's cloud kernel, downloaded once and unpacked, not installed.
fn unpacked_kernel() -> PathBuf {
    static UNPACKED: LazyLock<PathBuf> = LazyLock::new(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/test_kernel.sh");
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../test-kernel");
        String::from_utf8(run(Command::new(script).arg(place))).unwrap().trim().into()
    });
    UNPACKED.clone()
}

fn find(dir: &Path, prefix: &str) -> Option<PathBuf> {
    let mut entries = fs::read_dir(dir).ok()?.flatten();
    entries.find(|entry| entry.file_name().to_string_lossy().starts_with(prefix)).map(|entry| entry.path())
}

/// The `lib/modules/VERSION` that belongs to the kernel: beside `boot/` in an unpacked package, or the host's.
fn modules() -> PathBuf {
    let kernel = kernel();
    let version = kernel.file_name().unwrap().to_string_lossy().trim_start_matches("vmlinuz-").to_owned();
    let beside = kernel.parent().unwrap().join("../lib/modules").join(&version);
    if beside.exists() { beside } else { unpacked_kernel().join("lib/modules").join(version) }
}

fn initrd() -> PathBuf {
    let init = fs::read(compiled("init")).unwrap();
    let module = modules().join("kernel/drivers/block/virtio_blk.ko.xz");
    let module = run(Command::new("xz").arg("-dc").arg(module));
    let mut archive = Vec::new();
    add_to_cpio(&mut archive, "modules", 0o040_755, &[]);
    add_to_cpio(&mut archive, "dev", 0o040_755, &[]);
    add_to_cpio(&mut archive, "modules/virtio_blk.ko", 0o100_644, &module);
    add_to_cpio(&mut archive, "init", 0o100_755, &init);
    add_to_cpio(&mut archive, "TRAILER!!!", 0, &[]);
    let path = WORK.join("initrd");
    fs::write(&path, archive).unwrap();
    path
}

/// One entry of the "newc" format, which the kernel unpacks.
fn add_to_cpio(archive: &mut Vec<u8>, name: &str, mode: u32, bytes: &[u8]) {
    let inode = archive.len() as u32 + 1;
    let fields = [inode, mode, 0, 0, 1, 0, bytes.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
    let header: String = fields.iter().map(|field| format!("{field:08x}")).collect();
    archive.extend_from_slice(format!("070701{header}{name}\0").as_bytes());
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend_from_slice(bytes);
    archive.resize(archive.len().next_multiple_of(4), 0);
}

/// A program of `tests/fixtures`, static, so that it runs in a guest or a jail with nothing around it.
pub fn compiled(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(format!("{name}.rs"));
    let program = WORK.join(name);
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let options = ["--edition=2024", "-O", "-Cstrip=symbols", "-Ctarget-feature=+crt-static", "-o"];
    run(Command::new(rustc).args(options).arg(&program).arg(source));
    program
}

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
