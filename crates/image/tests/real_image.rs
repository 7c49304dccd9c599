//! Builds a real, small Debian image and checks its content, and attacks the host from inside a build's jail.
//!
//! This program is the launcher of the jail as well, so it has its own `main`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandling_image::{BuildError, BuildOptions, Image, ImageStore, KernelOrigin, Recipe, Step, jail, resolve};

#[path = "real_image/hostile_hook.rs"]
mod hostile_hook;

type Test = fn() -> Result<()>;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(jail::ARGUMENT) {
        return jail::main();
    }
    let tests: [(&str, Test); 3] = [
        (
            "a_real_image_is_built_once_and_has_what_a_sandbox_needs",
            a_real_image_is_built_once_and_has_what_a_sandbox_needs,
        ),
        ("a_hostile_hook_reaches_only_the_mirrors", hostile_hook::a_hostile_hook_reaches_only_the_mirrors),
        ("an_ordinary_users_build_is_jailed_as_well", hostile_hook::an_ordinary_users_build_is_jailed_as_well),
    ];
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for (name, test) in tests {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())) {
            if let Err(error) = test() {
                println!("test {name} ... FAILED: {error:?}");
                return ExitCode::FAILURE;
            }
            println!("test {name} ... ok");
        }
    }
    ExitCode::SUCCESS
}

/// Debian's minimal system and one small package. The build takes about a minute.
fn tiny() -> Result<Recipe> {
    let mut recipe = resolve("base")?.recipe.renamed("tiny")?;
    recipe.packages = ["hello".to_owned()].into();
    // They need pip, which Debian's minimal system lacks.
    recipe.pip.clear();
    recipe.disk_mib = 1024;
    Ok(recipe)
}

fn build(store: &ImageStore, recipe: &Recipe) -> Result<(Image, Vec<Step>, Duration)> {
    let (mut steps, mut longest, mut last) = (Vec::new(), Duration::ZERO, Instant::now());
    let image = store.ensure(recipe, &BuildOptions::default(), &mut |progress| {
        longest = longest.max(last.elapsed());
        last = Instant::now();
        if steps.last() != Some(&progress.step) {
            steps.push(progress.step);
        }
    })?;
    Ok((image, steps, longest.max(last.elapsed())))
}

/// The host's package lists, which a build must not change.
fn apt_lists() -> Result<BTreeSet<OsString>> {
    let entries = fs::read_dir("/var/lib/apt/lists").context("apt keeps its lists there")?;
    Ok(entries.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<_>>()?)
}

/// Reads an image with e2fsprogs, which needs neither root nor a mount.
fn debugfs(image: &Path, request: &str) -> Result<String> {
    let output = Command::new("debugfs")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .args(["-R", request])
        .arg(image)
        .output()
        .context("debugfs comes with e2fsprogs")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn a_real_image_is_built_once_and_has_what_a_sandbox_needs() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let store = ImageStore::open(dir.path().join("templates"))?;
    let recipe = tiny()?;
    let hosts_lists = apt_lists()?;
    let (image, steps, longest_silence) = build(&store, &recipe)?;
    ensure!(apt_lists()? == hosts_lists, "the build changed the host's package lists");

    for step in [Step::PackageLists, Step::Download, Step::Install, Step::FileSystem, Step::Kernel, Step::Initrd] {
        ensure!(steps.contains(&step), "{step:?} was never reported: {steps:?}");
    }
    // At most two seconds on an idle machine; more is allowed for a busy one.
    ensure!(longest_silence < Duration::from_secs(60), "silent for {longest_silence:?}");
    check_root(&image)?;
    check_kernel(&image)?;

    let (again, steps, _) = build(&store, &recipe)?;
    ensure!(again.id == image.id, "the same recipe gave another image");
    ensure!(steps.is_empty(), "an image that is up to date was built again: {steps:?}");
    image.verify_full()?;

    check_missing_package(&store, &recipe)?;
    check_roots_file(&store, &image)
}

fn check_root(image: &Image) -> Result<()> {
    let root = image.root_img();
    let metadata = fs::metadata(&root)?;
    ensure!(metadata.len() == 1024 << 20, "the disk has {} bytes", metadata.len());
    ensure!(metadata.blocks() * 512 < 512 << 20, "the disk is not sparse");
    ensure!(image.manifest.packages.contains_key("hello"), "the manifest does not list the package");

    let passwd = debugfs(&root, "cat /etc/passwd")?;
    ensure!(passwd.contains("user:x:1000:1000::/home/user:/bin/bash"), "{passwd}");
    for (path, mode, owner) in [
        ("/workspace", "0777", "User:  1000"),
        ("/usr/bin/passwd", "04755", "User:     0"),
        ("/etc/machine-id", "0644", "Size: 0"),
        ("/etc/resolv.conf", "0644", "Size: 0"),
    ] {
        let stat = debugfs(&root, &format!("stat {path}"))?;
        ensure!(stat.contains(&format!("Mode:  {mode}")) && stat.contains(owner), "{path}: {stat}");
    }
    ensure!(debugfs(&root, "cat /etc/hosts")?.contains("localhost"), "localhost has no address");
    let apt = debugfs(&root, "ls /etc/apt/apt.conf.d")?;
    ensure!(!apt.contains("99mmdebstrap"), "the host's apt settings stayed in the image");
    let lists = debugfs(&root, "ls /var/lib/apt/lists")?;
    ensure!(!lists.contains("Packages"), "package lists stayed in the image: {lists}");
    ensure!(debugfs(&root, "ls /proc")?.split_whitespace().count() <= 8, "the host's /proc was copied");
    let features = debugfs(&root, "features")?;
    ensure!(!features.contains("has_journal"), "{features}");
    Ok(())
}

fn check_kernel(image: &Image) -> Result<()> {
    let origin = &image.manifest.kernel_origin;
    ensure!(matches!(origin, KernelOrigin::Debian { version, .. } if version.starts_with("6.12.")), "{origin:?}");
    let order = fs::read_to_string(image.kernel().with_file_name("modules").join("order"))?;
    let position = |module: &str| order.lines().position(|line| line.starts_with(module)).context(module.to_owned());
    ensure!(position("scsi_mod.")? < position("sd_mod.")?, "{order}");
    ensure!(position("net_failover.")? < position("virtio_net.")?, "{order}");
    ensure!(position("virtio_blk.").is_ok() && position("virtio_balloon.").is_ok(), "{order}");
    let initrd = fs::read(image.initrd())?;
    ensure!(initrd.starts_with(b"070701"), "the initrd is not a newc archive");
    ensure!(
        initrd.windows(sandling_image::GUEST.len()).any(|window| window == sandling_image::GUEST),
        "no agent in it"
    );
    Ok(())
}

fn check_missing_package(store: &ImageStore, recipe: &Recipe) -> Result<()> {
    let mut wrong = recipe.renamed("wrong")?;
    wrong.packages.insert("no-such-package-anywhere".to_owned());
    let error = store.ensure(&wrong, &BuildOptions::default(), &mut |_| ()).err().context("it was built")?;
    ensure!(matches!(error, BuildError::NoSuchPackage { .. }), "{error}");
    ensure!(error.to_string() == "package `no-such-package-anywhere` does not exist in Debian trixie", "{error}");
    ensure!(store.list()?.len() == 1, "a template was left behind");
    Ok(())
}

fn check_roots_file(store: &ImageStore, image: &Image) -> Result<()> {
    let file = fs::OpenOptions::new().write(true).open(image.root_img());
    // Only root can write to the read-only file.
    if let Ok(file) = file {
        file.set_len(4096)?;
        let error = store.load(&image.manifest.recipe.name).err().context("a truncated disk was loaded")?;
        ensure!(error.to_string().contains("root.img has 4096 bytes instead of"), "{error}");
    }
    Ok(())
}
