//! Machines forked from machines: memory in layers, disks on disks, cached processes, and a parent that continues.

use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io};

use sandling_vmm::disk::{DiskFormat, create_overlay};
use sandling_vmm::machine::{Afterwards, Layer, Machine, MachineConfig, Start};
use sandling_vmm::memory::{Memory, MemoryMap};
use sandling_vmm::process_cache::{CachedProcess, ProcessCache, capture};

use crate::fixture::*;

const MEMORY_BYTES: u64 = 256 << 20;

/// A saved machine, from which children are restored.
pub struct Saved {
    memory: Memory,
    map: MemoryMap,
    state: PathBuf,
    disks: Vec<Layer>,
    top: String,
    /// An error if a thread started or ended at that moment, which happens more often on a busy host.
    cached: io::Result<CachedProcess>,
    /// The name of the overlay that a machine with the cached process writes to.
    next: String,
    stored_bytes: u64,
    /// The size of the layer below it.
    below_bytes: u64,
}

impl Saved {
    fn cached_process(&self) -> CachedProcess {
        self.cached.as_ref().unwrap().clone()
    }
}

/// Saves a machine that was restored from `below`, as the layer of that name. The machine continues.
pub async fn save(machine: &Machine, below: Option<&Saved>, name: &str) -> Saved {
    let dir = WORK.join(format!("saved-{name}"));
    fs::create_dir_all(&dir).unwrap();
    let (overlay, layer) = (format!("{name}-top.qcow2"), format!("{name}-disk"));
    let files = machine.dir().files();
    let fresh = files.join(&overlay);
    create_overlay(&fresh, &format!("/layers/{layer}"), DiskFormat::Qcow2, DISK_BYTES).await.unwrap();
    fs::set_permissions(&fresh, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let frozen = machine.freeze("saved-state", &overlay, MEMORY_BYTES, Afterwards::Running, Vec::new()).await.unwrap();
    let (below_map, mut layers) = below.map_or_else(Default::default, |b| (b.map.clone(), b.memory.layers.clone()));
    let pages = dir.join("pages");
    let files_below: Vec<_> = layers.iter().map(|path| fs::File::open(path).unwrap()).collect();
    let saved = frozen.select(&below_map, &files_below).unwrap();
    frozen.store(&saved, &mut fs::File::create(&pages).unwrap()).unwrap();
    if saved.layers == 1 {
        layers.clear();
    }
    layers.push(pages);
    let map = dir.join("map");
    fs::write(&map, saved.map.encode()).unwrap();
    let state = dir.join("state");
    fs::copy(files.join("saved-state"), &state).unwrap();
    let disk = dir.join("disk");
    let top = below.map_or("disk.qcow2".to_owned(), |below| below.top.clone());
    fs::rename(files.join(top), &disk).unwrap();
    fs::set_permissions(&disk, std::os::unix::fs::PermissionsExt::from_mode(0o444)).unwrap();
    let mut disks = below.map_or_else(|| TEMPLATE.disk().backing, |below| below.disks.clone());
    disks.push(Layer { name: layer, path: disk });
    let inode = |layer: &Layer| std::os::unix::fs::MetadataExt::ino(&fs::metadata(&layer.path).unwrap());
    let own: Vec<_> = disks.iter().map(|layer| (inode(layer), layer.name.clone())).collect();
    // A machine that was not resumed has no pages of a cached process below it, however it was saved before.
    let resumed_from = below.filter(|_| is_resumed(machine)).map(|below| below.cached_process());
    let mut pages = resumed_from.map_or_else(Vec::new, |cached| cached.pages().to_vec());
    pages.push(dir.join("process"));
    let mut out = fs::File::create(dir.join("process")).unwrap();
    let cached = capture(&frozen, pages.len() - 1, &own, &mut out).map(|process| {
        let plan = dir.join("plan");
        fs::write(&plan, process.plan(&saved.map)).unwrap();
        ProcessCache::open(&WORK, MachineConfig::QEMU.as_ref()).unwrap().process(plan, pages)
    });
    let memory = Memory { layers, map: Some(map), ..base_memory() };
    Saved {
        memory,
        map: saved.map,
        cached,
        next: overlay,
        state,
        disks,
        top: "disk.qcow2".to_owned(),
        stored_bytes: saved.bytes,
        below_bytes: below.map_or(0, |below| below.stored_bytes),
    }
}

fn is_resumed(machine: &Machine) -> bool {
    fs::read(format!("/proc/{}/cmdline", machine.pid())).unwrap().starts_with(b"/cached-qemu")
}

pub async fn child(of: &Saved, name: &str) -> (Machine, Guest) {
    start(of, name, None).await
}

pub async fn resumed(of: &Saved, name: &str) -> (Machine, Guest) {
    start(of, name, Some(of.cached_process())).await
}

async fn start(of: &Saved, name: &str, cached: Option<CachedProcess>) -> (Machine, Guest) {
    let mut config = restore_config(name).await;
    fs::remove_file(config.dir.files().join(&config.disk.overlay)).unwrap();
    if cached.is_some() {
        config.disk.overlay = of.next.clone();
    }
    config.start = Start::Restore { memory: of.memory.clone(), state: of.state.clone(), cached };
    config.disk.backing = of.disks.clone();
    let overlay = config.dir.files().join(&config.disk.overlay);
    let top = format!("/layers/{}", of.disks.last().unwrap().name);
    create_overlay(&overlay, &top, DiskFormat::Qcow2, DISK_BYTES).await.unwrap();
    let machine = Machine::restore(config).await.unwrap();
    machine.cont().await.unwrap();
    let guest = Guest::connect(&machine).await;
    (machine, guest)
}

#[tokio::test]
async fn a_resumed_process_is_jailed_as_qemu_is_and_sees_less() {
    let (parent, mut guest) = running("jailed-parent").await;
    assert_eq!(guest.ask("write something").await, "written");
    let saved = save(&parent, None, "jailed-parent").await;
    let (machine, mut guest) = resumed(&saved, "jailed").await;
    assert_eq!(guest.ask("read").await, "something");
    assert!(is_resumed(&machine) && !is_resumed(&parent));
    assert_eq!(machine.boundary(), parent.boundary());
    assert!(machine.boundary().missing(sandling_vmm::jail::Requirement::Required).is_empty());
    let proc = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", machine.pid())).unwrap();
    assert_eq!(proc("environ"), "");
    for line in proc("mountinfo").lines() {
        let fields: Vec<_> = line.split(' ').collect();
        let (place, options) = (fields[4], fields[5]);
        let known =
            place == "/" || ["/cached-qemu", "/dev/", "/layers/", "/vm"].iter().any(|known| place.starts_with(known));
        assert!(known && options.contains("nosuid"), "{line}");
        assert!(place == "/vm" || place.starts_with("/dev/") || options.starts_with("ro"), "{line}");
    }
    for target in open_files(machine.pid()) {
        let known = ["socket:", "pipe:", "anon_inode:", "/dev/null", "/vm/", "/layers/"];
        assert!(known.iter().any(|known| target.starts_with(known)), "{target}");
    }
    for machine in [parent, machine] {
        machine.end().await.unwrap();
    }
}

#[tokio::test]
async fn a_cached_process_is_resumed_and_captured_again() {
    let (parent, mut guest) = running("cached-parent").await;
    assert_eq!(guest.ask("write from the parent").await, "written");
    let asked: u32 = guest.ask("asked").await.parse().unwrap();
    let saved = save(&parent, None, "cached-parent").await;
    assert_eq!(guest.ask("asked").await, (asked + 1).to_string(), "the parent continues");
    parent.end().await.unwrap();
    let mut saved = saved;
    for number in 1..=9 {
        let (next, mut guest) = resumed(&saved, &format!("cached-{number}")).await;
        assert_eq!(guest.ask("asked").await, (asked + 3 * number - 2).to_string());
        assert_eq!(guest.ask("read").await, "from the parent");
        assert_eq!(guest.ask("fill 4000000").await, "filled");
        let below = Saved { top: saved.next.clone(), ..saved };
        saved = save(&next, Some(&below), &format!("cached-{number}")).await;
        next.end().await.unwrap();
    }
}

#[tokio::test]
async fn processes_resumed_from_one_capture_have_different_random_numbers() {
    let (parent, mut guest) = running("random-parent").await;
    guest.ask("random").await;
    let saved = save(&parent, None, "random-parent").await;
    parent.end().await.unwrap();
    let mut numbers = Vec::new();
    for name in ["random-one", "random-two"] {
        let (machine, mut guest) = resumed(&saved, name).await;
        numbers.push(guest.ask("random").await.parse::<u64>().unwrap());
        machine.end().await.unwrap();
    }
    assert_ne!(numbers[0], numbers[1]);
}

#[tokio::test]
async fn a_fork_of_a_fork_has_the_memory_and_the_disk_of_both_and_writes_are_private() {
    let (parent, mut guest) = running("fork-parent").await;
    assert_eq!(guest.ask("write from the parent").await, "written");
    let asked: u32 = guest.ask("asked").await.parse().unwrap();
    let saved = save(&parent, None, "parent").await;
    assert!(saved.stored_bytes > 0 && saved.stored_bytes < MEMORY_BYTES / 4, "{} bytes", saved.stored_bytes);
    assert_eq!(guest.ask("asked").await, (asked + 1).to_string(), "the parent continues");
    assert_eq!(guest.ask("write from the parent, later").await, "written");

    let (first, mut first_guest) = child(&saved, "fork-first").await;
    assert_eq!(first_guest.ask("asked").await, (asked + 1).to_string());
    assert_eq!(first_guest.ask("read").await, "from the parent");
    assert_eq!(first_guest.ask("write from the first").await, "written");
    let again = save(&first, Some(&saved), "first").await;
    assert!(again.stored_bytes < MEMORY_BYTES / 4);

    let (second, mut second_guest) = child(&again, "fork-second").await;
    assert_eq!(second_guest.ask("asked").await, (asked + 4).to_string());
    assert_eq!(second_guest.ask("read").await, "from the first");
    let (sibling, mut sibling_guest) = child(&saved, "fork-sibling").await;
    assert_eq!(sibling_guest.ask("read").await, "from the parent");
    assert_eq!(guest.ask("read").await, "from the parent, later");
    for machine in [parent, first, second, sibling] {
        machine.end().await.unwrap();
    }
}

#[tokio::test]
async fn a_long_line_of_forks_is_folded_without_loss() {
    let (mut machine, mut guest) = running("line").await;
    let asked: u32 = guest.ask("asked").await.parse().unwrap();
    let mut below: Option<Saved> = None;
    let mut most = 0;
    for number in 1..=14 {
        let saved = save(&machine, below.as_ref(), &format!("line-{number}")).await;
        most = most.max(saved.memory.layers.len());
        machine.end().await.unwrap();
        (machine, guest) = child(&saved, &format!("line-child-{number}")).await;
        assert_eq!(guest.ask("asked").await, (asked + number).to_string());
        below = Some(saved);
    }
    assert_eq!(most, 12);
    assert!(below.unwrap().memory.layers.len() < most, "it was folded");
    machine.end().await.unwrap();
}

#[tokio::test]
async fn a_second_save_of_one_machine_stores_only_what_changed() {
    let (machine, mut guest) = running("twice").await;
    assert_eq!(guest.ask("fill 16000000").await, "filled");
    let first = save(&machine, None, "twice-first").await;
    guest.ask("asked").await;
    let second =
        save(&machine, Some(&Saved { top: "twice-first-top.qcow2".to_owned(), ..first }), "twice-second").await;
    assert!(second.below_bytes > 16_000_000);
    assert!(second.stored_bytes * 2 < second.below_bytes, "{} after {}", second.stored_bytes, second.below_bytes);
    let (last, mut last_guest) = child(&second, "twice-child").await;
    assert_eq!(last_guest.ask("echo here").await, "here");
    machine.end().await.unwrap();
    last.end().await.unwrap();
}

#[tokio::test]
async fn a_copy_ends_when_its_caller_drops_it() {
    let (machine, mut guest) = running("copy-ends").await;
    let saved = save(&machine, None, "copy-ends").await;
    drop(saved);
    // The copy is a child of the thread that made it. Whichever that is, only zombies may be left.
    eventually("the copy ends", PATIENCE, || {
        let tasks = fs::read_dir(format!("/proc/{}/task", machine.pid())).unwrap().flatten();
        let mut children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        children.all(|line| line.split_whitespace().all(|pid| !is_alive(pid.parse().unwrap())))
    });
    assert_eq!(guest.ask("echo still here").await, "still here");
    machine.end().await.unwrap();
}

#[tokio::test]
async fn a_resumed_process_waits_for_pages_that_are_not_written_yet() {
    let (parent, mut guest) = running("early-parent").await;
    assert_eq!(guest.ask("fill 16000000").await, "filled");
    assert_eq!(guest.ask("write from the parent").await, "written");
    let mut saved = save(&parent, None, "early-parent").await;
    parent.end().await.unwrap();
    let whole = fs::read(&saved.memory.layers[0]).unwrap();
    let early = WORK.join("early-pages");
    let mut pages = fs::File::create(&early).unwrap();
    saved.memory.layers[0] = early;
    let child = tokio::spawn(async move {
        let (machine, mut guest) = resumed(&saved, "early-child").await;
        // The disk is read into guest memory, which is the kernel's access and not QEMU's.
        let read = guest.ask("read").await;
        (machine, guest, read)
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!child.is_finished(), "a guest without its memory answered");
    for part in whole.chunks(1 << 20) {
        io::Write::write_all(&mut pages, part).unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (machine, mut guest, read) = child.await.unwrap();
    assert_eq!(read, "from the parent");
    assert_eq!(guest.ask("fill 16000000").await, "filled");
    machine.end().await.unwrap();
}
