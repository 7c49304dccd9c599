//! QEMU's command line, and what of the host QEMU can see.
//!
//! Boot and restore have the same devices in the same order, because device state refers to them by their position.

use std::path::PathBuf;

use super::config::{Hardware, MachineConfig, Start};
use super::plug::{self, Plug};
use crate::accelerator::Accelerator;
use crate::inherited::{CABLE_FD, CONSOLE_FD, CONTROL_FD, COPY_FD, FIRST_PLUG_FD, QMP_FD, STATE_FD};
use crate::jail::{FILES, Inherit, LAYERS, Layer, Linkage, MEMORY, Program};

pub(super) const QMP_SOCKET: &str = "qmp.sock";
pub(super) const CONTROL_SOCKET: &str = "control.sock";
pub(super) const COPY_SOCKET: &str = "copy.sock";
pub(super) const CABLE_SOCKET: &str = "cable.sock";

/// QMP's name of the root disk, whatever overlay is on top of it.
pub(super) const DISK: &str = "disk";

/// The virtio-serial port by which the guest finds its control channel.
const CONTROL_PORT: &str = "sandling.control";

/// The address of every guest's network card. Each guest is alone with its gateway, so all have the same one.
const MAC: &str = "02:53:4c:00:00:02";

/// QEMU's firmware; in Debian the first directory has links into the second.
const DATA: [&str; 2] = ["/usr/share/qemu", "/usr/share/seabios"];

/// Translated code per machine: enough for the interpreters of a large template, and half as much again for what they
/// run. A guest could fill the default, a gigabyte.
const TRANSLATION_MIB: u32 = 192;

/// The program to jail for this machine.
pub(super) fn program(config: &MachineConfig) -> Program {
    let mut qemu = Program {
        path: config.qemu.clone(),
        linkage: Linkage::Dynamic,
        arguments: arguments(config),
        data: DATA.iter().map(PathBuf::from).collect(),
        layers: config.disk.backing.clone(),
        code: Vec::new(),
        memory: None,
        inherit: vec![
            Inherit::Listen { name: QMP_SOCKET.to_owned() },
            Inherit::Listen { name: CONTROL_SOCKET.to_owned() },
            Inherit::Console,
            Inherit::Cable { name: CABLE_SOCKET.to_owned() },
        ],
        kvm: config.hardware.accelerator == Accelerator::Kvm,
        preload: None,
        environment: Vec::new(),
    };
    match &config.start {
        Start::Boot { kernel, initrd, .. } => {
            qemu.layers.push(Layer { name: "kernel".to_owned(), path: kernel.clone() });
            qemu.layers.push(Layer { name: "initrd".to_owned(), path: initrd.clone() });
        }
        Start::Restore { .. } => {}
    }
    if let Some(memory) = config.start.memory() {
        qemu.inherit.push(match &config.start {
            // It takes the place of device state, so that the next descriptor has its number.
            Start::Boot { .. } => Inherit::Closed,
            Start::Restore { state, .. } => Inherit::Read { path: state.clone() },
        });
        qemu.inherit.push(Inherit::Listen { name: COPY_SOCKET.to_owned() });
        qemu.inherit.extend(config.plugs.iter().filter_map(Plug::inherited));
        qemu.layers.extend(memory.jail_layers());
        qemu.memory = Some(memory.base.clone());
        qemu.preload = Some(memory.library.clone());
        let memory_bytes = u64::from(config.hardware.memory_mib) << 20;
        qemu.environment = vec![
            ("SANDLING_MEMORY".to_owned(), memory_bytes.to_string()),
            ("SANDLING_COPY_FD".to_owned(), COPY_FD.to_string()),
        ];
    }
    match config.start.cached() {
        Some(cached) => cached.instead_of(qemu),
        None => qemu,
    }
}

fn arguments(config: &MachineConfig) -> Vec<String> {
    let mut options = hardware(&config.hardware);
    options.push(("object", memory_backend(&config.start, config.hardware.memory_mib)));
    options.extend(channels());
    options.extend(disks(&config.disk.overlay));
    options.extend(card());
    options.extend(plugged(&config.plugs));
    options.extend([("display", "none".to_owned()), ("L", DATA[0].to_owned())]);
    options.extend(beginning(&config.start));
    let mut words: Vec<_> = options.into_iter().flat_map(|(option, value)| [format!("-{option}"), value]).collect();
    words.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(str::to_owned));
    if matches!(config.start, Start::Restore { .. }) {
        // QEMU loads the machine and leaves it stopped.
        words.push("-S".to_owned());
    }
    words
}

type Options = Vec<(&'static str, String)>;

fn hardware(hardware: &Hardware) -> Options {
    let off = "usb=off,sata=off,smbus=off,vmport=off,mem-merge=off";
    vec![
        ("machine", format!("q35,memory-backend=memory,{off},suppress-vmdesc=on")),
        ("accel", accelerator_option(hardware.accelerator)),
        ("cpu", format!("{},vmx=off,svm=off", hardware.cpu_model)),
        ("smp", hardware.vcpus.to_string()),
        ("m", hardware.memory_mib.to_string()),
    ]
}

fn channels() -> Options {
    vec![
        ("chardev", format!("socket,id=qmp,fd={QMP_FD},server=on,wait=off")),
        ("mon", "chardev=qmp,mode=control".to_owned()),
        ("chardev", format!("socket,id=console,fd={CONSOLE_FD}")),
        ("serial", "chardev:console".to_owned()),
        ("chardev", format!("socket,id=control,fd={CONTROL_FD},server=on,wait=off")),
        ("device", "virtio-serial-pci".to_owned()),
        ("device", format!("virtserialport,chardev=control,name={CONTROL_PORT}")),
    ]
}

/// The root disk, and a controller into which volumes can be plugged later.
fn disks(overlay: &str) -> Options {
    let file = format!("{FILES}/{}", escape(overlay));
    vec![
        ("drive", format!("if=none,id={DISK},file={file},format=qcow2,cache=unsafe,discard=unmap")),
        ("device", format!("virtio-blk-pci,drive={DISK}")),
        ("device", "virtio-scsi-pci,id=scsi".to_owned()),
    ]
}

/// The network card. It is connected to a socket that QEMU inherits, and QEMU cannot make another.
fn card() -> Options {
    vec![
        ("netdev", format!("dgram,id=cable,local.type=fd,local.str={CABLE_FD}")),
        ("device", format!("virtio-net-pci,netdev=cable,mac={MAC},romfile=")),
    ]
}

/// The disks that were plugged in when the machine was saved, as [`Machine::plug`](super::Machine::plug) does it.
fn plugged(plugs: &[Plug]) -> Options {
    let mut fds = FIRST_PLUG_FD..;
    let mut options = Vec::new();
    for plug in plugs {
        if plug.inherited().is_some()
            && let Some(fd) = fds.next()
        {
            options.push(("add-fd", format!("fd={fd},set={}", plug::descriptor_set(plug.slot))));
        }
        options.push(("blockdev", plug.node().to_string()));
        options.push(("device", plug.device().to_string()));
    }
    options
}

fn beginning(start: &Start) -> Options {
    match start {
        Start::Boot { command_line, .. } => vec![
            ("kernel", format!("{LAYERS}/kernel")),
            ("initrd", format!("{LAYERS}/initrd")),
            ("append", command_line.clone()),
        ],
        // Device state is written without a configuration section, so QEMU must not expect one.
        Start::Restore { .. } => vec![
            ("global", "migration.send-configuration=off".to_owned()),
            ("global", "migration.x-events=on".to_owned()),
            // The gateway does not need announcements of the card's address, and they would keep the guest busy.
            ("global", "migration.announce-rounds=0".to_owned()),
            ("incoming", format!("fd:{STATE_FD}")),
        ],
    }
}

fn accelerator_option(accelerator: Accelerator) -> String {
    match accelerator {
        Accelerator::Kvm => "kvm".to_owned(),
        Accelerator::Tcg => format!("tcg,thread=multi,tb-size={TRANSLATION_MIB}"),
    }
}

/// Shared if the file is to become the machine's memory; private over saved memory, so that the file never changes.
fn memory_backend(start: &Start, mib: u32) -> String {
    let (path, share) = match start.memory() {
        None => (format!("{FILES}/{}", MachineConfig::MEMORY), "on"),
        Some(_) => (MEMORY.to_owned(), "off"),
    };
    format!("memory-backend-file,id=memory,size={mib}M,mem-path={path},share={share}")
}

/// Doubles commas, which separate QEMU's options.
fn escape(value: &str) -> String {
    value.replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jail::{JailConfig, MachineDir};
    use crate::machine::Disk;
    use crate::memory::Memory;

    fn config(start: Start, accelerator: Accelerator) -> MachineConfig {
        MachineConfig {
            dir: MachineDir::new("/nowhere"),
            hardware: Hardware { accelerator, cpu_model: "max".into(), vcpus: 2, memory_mib: 256 },
            start,
            disk: Disk { overlay: "a,b.qcow2".into(), backing: Vec::new() },
            jail: JailConfig::new().unwrap(),
            qemu: MachineConfig::QEMU.into(),
            deadline_ms: None,
            plugs: Vec::new(),
        }
    }

    fn boot() -> Start {
        Start::Boot { kernel: "/k".into(), initrd: "/i".into(), command_line: "quiet".into(), over: None }
    }

    fn boot_over() -> Start {
        let over = Some(Memory::base("/m".into(), "/l".into()));
        Start::Boot { kernel: "/k".into(), initrd: "/i".into(), command_line: "quiet".into(), over }
    }

    fn restore() -> Start {
        Start::Restore { memory: Memory::base("/m".into(), "/l".into()), state: "/s".into(), cached: None }
    }

    fn devices(program: &Program) -> Vec<String> {
        let words = &program.arguments;
        words.iter().zip(&words[1..]).filter(|(option, _)| *option == "-device").map(|(_, v)| v.clone()).collect()
    }

    #[test]
    fn boot_and_restore_have_the_same_devices() {
        let booted = program(&config(boot(), Accelerator::Tcg));
        let restored = program(&config(restore(), Accelerator::Tcg));
        assert_eq!(devices(&booted), devices(&restored));
        assert_eq!(devices(&program(&config(boot_over(), Accelerator::Tcg))), devices(&restored));
        assert_eq!(devices(&booted).len(), 5);
    }

    #[test]
    fn shared_memory_is_never_mapped_shared() {
        for start in [restore(), boot_over()] {
            let words = program(&config(start, Accelerator::Tcg)).arguments.join(" ");
            assert!(words.contains("mem-path=/layers/memory,share=off"), "{words}");
            assert!(!words.contains("share=on"), "{words}");
        }
    }

    #[test]
    fn a_machine_that_boots_over_saved_memory_has_the_descriptors_of_a_restored_one() {
        let inherited = |start| program(&config(start, Accelerator::Tcg)).inherit.len();
        assert_eq!(inherited(boot_over()), inherited(restore()));
        assert_ne!(inherited(boot()), inherited(restore()));
    }

    #[test]
    fn guests_get_no_virtualisation_and_kvm_only_its_own_device() {
        let kvm = program(&config(boot(), Accelerator::Kvm));
        assert!(kvm.kvm && kvm.arguments.contains(&"max,vmx=off,svm=off".to_owned()));
        assert!(!program(&config(boot(), Accelerator::Tcg)).kvm);
    }

    #[test]
    fn a_comma_in_a_file_name_is_no_option() {
        let words = program(&config(boot(), Accelerator::Tcg)).arguments.join(" ");
        assert!(words.contains("file=/vm/a,,b.qcow2,format"), "{words}");
    }
}
