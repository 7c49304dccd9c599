//! Attacks from inside a guest on its own machine: devices, the control channel, data of the host.

use std::time::Duration;

use anyhow::ensure;
use serde_json::json;

use super::server::{CANARY_VARIABLE, Sandbox};
use super::trial::Trial;
use super::world::{Ready, World};

const LIMIT: Duration = Duration::from_secs(40);

/// Vendors and devices of the chipset and of virtio.
const KNOWN_DEVICES: [&str; 2] = ["0x8086", "0x1af4"];

/// Takes the agent's own end of the control channel, as root in a guest can, and writes rubbish into it.
const RUBBISH: &str = "import ctypes, os, select, time
def link(fd):
    try:
        return os.readlink(f'/proc/1/fd/{fd}')
    except FileNotFoundError:
        return ''
port = next(int(fd) for fd in os.listdir('/proc/1/fd') if link(fd).startswith('/dev/vport'))
fd = ctypes.CDLL(None, use_errno=True).syscall(438, os.pidfd_open(1), port, 0)
assert fd >= 0, os.strerror(ctypes.get_errno())
rubbish = b'\\0\\x05abc\\0' + os.urandom(65536) + b'\\0'
while rubbish:
    select.select([], [fd], [])
    rubbish = rubbish[os.write(fd, rubbish):]
time.sleep(600)";

const PANIC: &str = "echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger; sleep 600";

/// Writes random values to the registers of every PCI device. The chipset's configuration is left alone, because the
/// guest needs it to go on.
const REGISTERS: &str = "import glob, mmap, os, random, time
places = []
for path in glob.glob('/sys/bus/pci/devices/*/resource[0-9]'):
    size = os.path.getsize(path)
    fd = os.open(path, os.O_RDWR | os.O_SYNC)
    try:
        mapped = mmap.mmap(fd, size)
        def put(at, value, mapped=mapped):
            mapped[at:at + len(value)] = value
    except OSError:
        def put(at, value, fd=fd):
            os.pwrite(fd, value, at)
    places.append((size, put))
ends = time.monotonic() + 5
count = 0
while places and time.monotonic() < ends:
    for _ in range(200):
        size, put = random.choice(places)
        width = random.choice((1, 2, 4))
        try:
            put(random.randrange(0, size // width) * width, os.urandom(width))
            count += 1
        except OSError:
            pass
print(count)";

pub async fn devices(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    let listed = shell(ready, "cat /sys/bus/pci/devices/*/vendor | sort | uniq -c").await?;
    let vendors: Vec<_> = listed.split_whitespace().filter(|word| word.starts_with("0x")).collect();
    let known = !vendors.is_empty() && vendors.iter().all(|vendor| KNOWN_DEVICES.contains(vendor));
    trial.record(known, "vendors of PCI devices: chipset and virtio", vendors.join(", "));
    let shared = shell(ready, "grep -E ' (9p|virtiofs|fuse|nfs|cifs|vboxsf) ' /proc/mounts || echo none").await?;
    trial.record(shared == "none", "folders that are shared with the host", shared);
    let nested = shell(ready, "grep -c -w -E 'vmx|svm' /proc/cpuinfo; ls /dev/kvm 2>/dev/null; true").await?;
    trial.record(nested == "0", "nested virtualization", format!("{nested} processors offer it"));
    let usb = shell(ready, "ls /sys/bus/usb/devices 2>/dev/null | wc -l").await?;
    trial.record(usb == "0", "USB devices", usb);
    Ok(())
}

/// A variable of the server and the path of its home, searched for everywhere in the guest.
pub async fn host_data(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    let home = ready.server.home().root().display().to_string();
    let operator = &ready.server.operator;
    for (what, secret) in [
        ("a variable of the server", ready.server.canary.as_str()),
        ("its name", CANARY_VARIABLE),
        ("the path of the home", home.as_str()),
        ("the operator's token", operator.as_str()),
    ] {
        // Reversed, so that the search does not find itself.
        let reversed: String = secret.chars().rev().collect();
        let code = format!(
            "import glob, subprocess\nneedle = {reversed:?}[::-1].encode()\nfound = []\nplaces = \
             glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline') + ['/proc/cmdline'] + \
             glob.glob('/sys/firmware/qemu_fw_cfg/**', recursive=True) + glob.glob('/run/**', recursive=True) + \
             glob.glob('/etc/**', recursive=True) + glob.glob('/sys/class/dmi/id/*')\nfor place in places:\n    \
             try:\n        if needle in open(place, 'rb').read(1 << 20):\n            found.append(place)\n    except \
             OSError:\n        pass\nif needle in subprocess.run(['dmesg'], capture_output=True).stdout:\n    \
             found.append('dmesg')\nprint(len(places), found)"
        );
        let ended = ready.sandbox.python(&code, LIMIT).await?;
        let said = ended.stdout.trim().to_owned();
        ensure!(ended.exit_code == 0 && !said.is_empty(), "the search failed: {}", ended.stderr);
        let happened = said.replacen(' ', " files searched, found in ", 1);
        trial.record(said.ends_with("[]"), format!("{what} in files, variables and the kernel's log"), happened);
    }
    Ok(())
}

pub async fn control_channel(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    let victim = ready.server.sandbox(&ready.attacker, json!({})).await?;
    let ended = victim.python(RUBBISH, LIMIT).await;
    let happened = match &ended {
        Ok(ended) => format!("the command ended: {}", ended.reason),
        Err(error) => format!("{error:#}").chars().take(150).collect(),
    };
    trial.record(!matches!(&ended, Ok(ended) if ended.reason == "timeout"), "rubbish on the control channel", happened);
    others_live(ready, trial).await?;
    victim.remove().await;
    Ok(())
}

pub async fn crash(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    let victim = ready.server.sandbox(&ready.attacker, json!({})).await?;
    let ended = victim.shell(PANIC, LIMIT).await;
    let happened = match &ended {
        Ok(ended) => format!("the command ended: {}", ended.reason),
        Err(error) => format!("{error:#}").chars().take(150).collect(),
    };
    trial.record(ended.is_err(), "a kernel panic ends that sandbox", happened);
    others_live(ready, trial).await?;
    victim.remove().await;
    Ok(())
}

pub async fn registers(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    const WHAT: &str = "random values in the registers of PCI devices";
    let ready = world.ready().await?;
    let victim = ready.server.sandbox(&ready.attacker, json!({})).await?;
    match victim.python(REGISTERS, LIMIT).await {
        Ok(ended) if ended.exit_code == 0 && ended.stdout.trim() == "0" => {
            trial.skip(WHAT, "the guest's kernel lets nobody write there");
        }
        Ok(ended) if ended.exit_code == 0 => {
            trial.record(true, WHAT, format!("{} writes, the machine survived", ended.stdout.trim()));
        }
        Ok(ended) => trial.record(true, WHAT, format!("the command ended: {}", last_line(&ended.stderr))),
        Err(error) => trial.record(true, WHAT, format!("{error:#}").chars().take(150).collect::<String>()),
    }
    others_live(ready, trial).await?;
    victim.remove().await;
    Ok(())
}

fn last_line(text: &str) -> &str {
    text.trim().lines().next_back().unwrap_or("without a message")
}

async fn others_live(ready: &Ready, trial: &mut Trial) -> anyhow::Result<()> {
    let lives = async |sandbox: &Sandbox| sandbox.shell("echo alive", LIMIT).await.is_ok_and(|e| e.stdout == "alive\n");
    for (whose, sandbox) in [("the same tenant", &ready.sandbox), ("another tenant", &ready.witness)] {
        let alive = lives(sandbox).await;
        trial.record(alive, format!("a sandbox of {whose} afterwards"), if alive { "it works" } else { "it is dead" });
    }
    Ok(())
}

async fn shell(ready: &Ready, line: &str) -> anyhow::Result<String> {
    let ended = ready.sandbox.shell(line, LIMIT).await?;
    Ok(ended.stdout.trim().to_owned())
}
