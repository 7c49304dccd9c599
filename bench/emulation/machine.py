"""Machines that boot a template's image, each with a QEMU, a processor and a kernel command line of its own."""

import contextlib
import dataclasses
import json
import lzma
import os
import pathlib
import shutil
import socket
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent

# As crates/vmm and crates/engine start their machines.
MACHINE = ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
MACHINE += ["-machine", "q35,usb=off,sata=off,smbus=off,vmport=off,mem-merge=off,memory-backend=memory"]
CPU = "max,la57=off,xlevel=0x80000008,erms=off"
COMMAND_LINE = "console=ttyS1 quiet loglevel=4 panic=-1 reboot=t tsc=reliable no_timer_check random.trust_cpu=on "
COMMAND_LINE += "cgroup_no_v1=all mitigations=off nmi_watchdog=0 audit=0 psi=0 lsm=landlock init_on_alloc=0 "
# The guest agent turns the randomization of addresses off where code is translated.
COMMAND_LINE += "norandmaps"


@dataclasses.dataclass(frozen=True)
class Variant:
    """What one machine is started with. The defaults are Sandling's."""

    name: str
    cpu: str = CPU
    translation_mib: int = 192
    # Absent: as many as the template has.
    vcpus: int | None = None
    # `file` is a private mapping of a file, as after a restore. `huge` lets the host use huge pages.
    memory: str = "file"
    kernel: str = ""
    # The directory into which another QEMU's packages were unpacked.
    qemu: pathlib.Path | None = None


class Image:
    """The files of a built template."""

    def __init__(self, store, name):
        image = json.loads((store / "names" / f"{name}.json").read_text())["image"]
        manifest = json.loads((store / "images" / image / "manifest.json").read_text())
        kernel = store / "kernels" / manifest["kernel"]["id"]
        self.vmlinuz = kernel / "vmlinuz"
        self.virtio_blk = lzma.decompress((kernel / "modules/virtio_blk.ko.xz").read_bytes())
        self.root = store / "roots" / manifest["root"]["id"] / "root.img"
        self.memory_mib, self.vcpus = (manifest["recipe"][name] for name in ["memory_mib", "vcpus"])


def make_initrd(work, image):
    tree = work / "initrd"
    for folder in ["bin", "dev", "root"]:
        (tree / folder).mkdir(parents=True)
    shutil.copy(shutil.which("busybox"), tree / "bin/busybox")
    shutil.copy(HERE / "guest.py", tree)
    shutil.copy(HERE / "init.sh", tree / "init")
    shutil.copy(HERE.parent / "src/agent_day/setup.sh", tree)
    (tree / "init").chmod(0o755)
    (tree / "virtio_blk.ko").write_bytes(image.virtio_blk)
    names = "\n".join(str(path.relative_to(tree)) for path in tree.rglob("*"))
    packed = subprocess.run(
        ["busybox", "cpio", "-o", "-H", "newc"], cwd=tree, input=names.encode(), capture_output=True, check=True
    )
    (work / "initrd.cpio").write_bytes(packed.stdout)
    return work / "initrd.cpio"


def program(root):
    """The words that start a QEMU with its own firmware."""
    if root is None:
        return ["qemu-system-x86_64"]
    data = [word for name in ["qemu", "seabios"] for word in ["-L", str(root / "usr/share" / name)]]
    return [str(root / "usr/bin/qemu-system-x86_64"), *data]


class Machine:
    """One running guest that does work on request."""

    def __init__(self, variant, image, initrd, work):
        self.variant = variant
        place = work / str(len(list(work.iterdir())))
        place.mkdir()
        self.log, self.monitor_path = place / "console.log", place / "monitor"
        memory = f"memory-backend-ram,id=memory,size={image.memory_mib}M"
        if variant.memory == "file":
            with (place / "memory").open("wb") as file:
                file.truncate(image.memory_mib << 20)
            memory = f"memory-backend-file,id=memory,size={image.memory_mib}M,mem-path={file.name},share=off"
        words = [*program(variant.qemu), *MACHINE, "-name", "bench,debug-threads=on"]
        words += [
            "-accel",
            f"tcg,thread=multi,tb-size={variant.translation_mib}",
            "-smp",
            str(variant.vcpus or image.vcpus),
        ]
        words += ["-cpu", f"{variant.cpu},vmx=off,svm=off", "-m", str(image.memory_mib), "-object", memory]
        words += ["-drive", f"if=virtio,file={image.root},format=raw,snapshot=on"]
        words += ["-kernel", str(image.vmlinuz), "-initrd", str(initrd), "-append", f"{COMMAND_LINE} {variant.kernel}"]
        words += ["-serial", "stdio", "-serial", f"file:{self.log}"]
        words += ["-monitor", f"unix:{self.monitor_path},server=on,wait=off"]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def ready(self):
        """The names of its pieces of work."""
        words = self.line().split("|")
        if words[0] != "ready":
            sys.exit(f"{self.variant.name} does not start: {self.failure_reason()}")
        return words[1:]

    def line(self):
        return self.process.stdout.readline().strip()

    def do(self, request):
        """What the work cost on the host, and what the guest counted meanwhile; ``None`` if the work failed."""
        before = self.cpu_ms()
        self.process.stdin.write(f"{request}\n")
        self.process.stdin.flush()
        answer = self.line()
        if not answer.startswith("{"):
            return None
        return json.loads(answer) | {"cpu_ms": self.cpu_ms() - before}

    def cpu_ms(self):
        """CPU time of the emulated processors."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        cpus = [task for task in tasks if (task / "comm").read_text().startswith("CPU ")]
        return sum(int((task / "schedstat").read_text().split()[0]) for task in cpus) / 1e6

    def translation(self):
        """QEMU's counters of translated blocks and of flushed address translations."""
        counters = {}
        for line in self.monitor("info jit").splitlines():
            name, _, rest = line.strip().partition("  ")
            number = rest.split()[0] if rest.split() else ""
            if number.isdigit():
                counters[name] = int(number)
        return counters

    def monitor(self, command):
        prompt = b"(qemu) "
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as connection:
            connection.connect(os.fspath(self.monitor_path))
            answers = []
            for words in [b"", command.encode() + b"\n"]:
                connection.sendall(words)
                answer = b""
                while not answer.endswith(prompt):
                    answer += connection.recv(65536)
                answers.append(answer)
        return answers[1].decode(errors="replace")

    def failure_reason(self):
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return next((line for line in lines if "trap" in line or "Error" in line), "it ended")

    def end(self):
        self.process.kill()
        self.process.wait()
