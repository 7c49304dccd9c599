//! QEMU's command line, and what of the host it gets to see.
//!
//! The same devices in the same order at boot and at restore: device state names them by their place.

use std::path::PathBuf;

use super::config::{Hardware, MachineConfig, Start};
use super::plug::{self, Plug};
use crate::accelerator::Accelerator;
use crate::jail::{FILES, FIRST_INHERITED, Inherit, LAYERS, Layer, MEMORY, Program};
use crate::thaw::{PLAN, pages_name};

pub(super) const QMP_SOCKET: &str = "qmp.sock";
pub(super) const CONTROL_SOCKET: &str = "control.sock";
pub(super) const COPY_SOCKET: &str = "copy.sock";
pub(super) const CABLE_SOCKET: &str = "cable.sock";

/// The name under which QMP knows the root disk, whatever overlay is on top of it.
pub(super) const DISK: &str = "disk";

/// The virtio-serial port by which the guest finds its control channel.
const CONTROL_PORT: &str = "sandling.control";

/// The address of every guest's card. Each is alone with its gateway, so they need not differ.
const MAC: &str = "02:53:4c:00:00:02";

/// QEMU's firmware; in Debian the second holds what the first only links to.
const DATA: [&str; 2] = ["/usr/share/qemu", "/usr/share/seabios"];

/// Translated code per machine. Enough for the interpreters of a large template, and half as much again for what they
/// run; the default, a gigabyte, would be the guest's to fill.
const TRANSLATION_MIB: u32 = 192;

const QMP_FD: i32 = FIRST_INHERITED;
const CONTROL_FD: i32 = FIRST_INHERITED + 1;
const CONSOLE_FD: i32 = FIRST_INHERITED + 2;
const CABLE_FD: i32 = FIRST_INHERITED + 3;
const STATE_FD: i32 = FIRST_INHERITED + 4;
const COPY_FD: i32 = FIRST_INHERITED + 5;
const FIRST_PLUG_FD: i32 = FIRST_INHERITED + 6;

/// What a machine that may be saved was born with, and in a thawed one a connection whose other end is gone: device
/// state is read before anything is saved.
pub(crate) const INHERITED: std::ops::Range<i32> = FIRST_INHERITED..FIRST_PLUG_FD;
pub(crate) const CLOSED_FD: i32 = STATE_FD;

/// The program to jail for this machine.
pub(super) fn program(config: &MachineConfig) -> Program {
    let mut inherit = vec![
        Inherit::Listen { name: QMP_SOCKET.to_owned() },
        Inherit::Listen { name: CONTROL_SOCKET.to_owned() },
        Inherit::Console,
        Inherit::Cable { name: CABLE_SOCKET.to_owned() },
    ];
    let mut layers = config.disk.backing.clone();
    let mut environment = Vec::new();
    let memory_bytes = u64::from(config.hardware.memory_mib) << 20;
    let memory = match &config.start {
        Start::Boot { kernel, initrd, .. } => {
            layers.push(Layer { name: "kernel".to_owned(), path: kernel.clone() });
            layers.push(Layer { name: "initrd".to_owned(), path: initrd.clone() });
            None
        }
        Start::Restore { memory, state, thaw } => {
            inherit.push(thaw.as_ref().map_or_else(|| Inherit::Read { path: state.clone() }, |_| Inherit::Closed));
            inherit.push(Inherit::Listen { name: COPY_SOCKET.to_owned() });
            layers.extend(memory.jail_layers());
            if thaw.is_none() {
                environment.push(("SANDLING_MEMORY".to_owned(), memory_bytes.to_string()));
                environment.push(("SANDLING_COPY_FD".to_owned(), COPY_FD.to_string()));
            }
            inherit.extend(config.plugs.iter().filter_map(Plug::inherited));
            Some(memory)
        }
    };
    let thaw = config.start.thaw();
    layers.extend(thaw.map(|thaw| Layer { name: PLAN.to_owned(), path: thaw.plan.clone() }));
    let pages = thaw.map_or(&[][..], |thaw| &thaw.pages).iter().enumerate();
    let code = pages.map(|(number, path)| Layer { name: pages_name(number), path: path.clone() }).collect();
    Program {
        path: thaw.map_or(&config.qemu, |thaw| &thaw.program).clone(),
        arguments: if thaw.is_some() { Vec::new() } else { arguments(config) },
        code,
        thaws: thaw.is_some(),
        data: if thaw.is_some() { Vec::new() } else { DATA.iter().map(PathBuf::from).collect() },
        layers,
        memory: memory.map(|memory| memory.base.clone()),
        inherit,
        kvm: config.hardware.accelerator == Accelerator::Kvm,
        preload: memory.filter(|_| thaw.is_none()).map(|memory| memory.library.clone()),
        environment,
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
        // Loaded, and stopped until it is told to continue.
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

/// The network card. It ends in a socket that QEMU was born with, and it cannot make another.
fn card() -> Options {
    vec![
        ("netdev", format!("dgram,id=cable,local.type=fd,local.str={CABLE_FD}")),
        ("device", format!("virtio-net-pci,netdev=cable,mac={MAC},romfile=")),
    ]
}

/// What was plugged in when the machine was saved, as [`Machine::plug`](super::Machine::plug) does it.
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
        // Device state is written without a configuration section, so none may be expected.
        Start::Restore { .. } => vec![
            ("global", "migration.send-configuration=off".to_owned()),
            ("global", "migration.x-events=on".to_owned()),
            // Nobody has to learn where the card is now, and the guest would be kept busy with it.
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

/// Shared while a machine boots, so that the file is its memory; private afterwards, so that the file never changes.
fn memory_backend(start: &Start, mib: u32) -> String {
    let (path, share) = match start {
        Start::Boot { .. } => (format!("{FILES}/{}", MachineConfig::MEMORY), "on"),
        Start::Restore { .. } => (MEMORY.to_owned(), "off"),
    };
    format!("memory-backend-file,id=memory,size={mib}M,mem-path={path},share={share}")
}

/// A comma inside a value is written twice.
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
            jail: JailConfig::new(None).unwrap(),
            qemu: MachineConfig::QEMU.into(),
            deadline_ms: None,
            plugs: Vec::new(),
        }
    }

    fn boot() -> Start {
        Start::Boot { kernel: "/k".into(), initrd: "/i".into(), command_line: "quiet".into() }
    }

    fn restore() -> Start {
        Start::Restore { memory: Memory::base("/m".into(), "/l".into()), state: "/s".into(), thaw: None }
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
        assert_eq!(devices(&booted).len(), 5);
    }

    #[test]
    fn shared_memory_is_never_mapped_shared() {
        let words = program(&config(restore(), Accelerator::Tcg)).arguments.join(" ");
        assert!(words.contains("mem-path=/layers/memory,share=off"), "{words}");
        assert!(!words.contains("share=on"), "{words}");
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
