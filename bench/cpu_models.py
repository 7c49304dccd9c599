#!/usr/bin/env python3
"""Which CPU model runs a template's Python, numpy and Node fastest under emulation.

Boots the template's image once per model, all machines side by side, and lets them do each piece of work in turns, in a
changing order, so that a busy moment of the host affects all of them. It compares the CPU time of the emulated CPU's
thread, which other programs disturb far less than the wall clock.

    bench/cpu_models.py --templates DIR [--template code-interpreter] [--rounds 15] [MODEL…]
"""

import argparse
import json
import lzma
import math
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent / "cpu_models"

# Sandling's model comes first: the others are shown as ratios to it.
MODELS = [
    "max,la57=off,xlevel=0x80000008,erms=off",
    "max,la57=off,xlevel=0x80000008",
    "max,la57=off,xlevel=0x80000008,erms=off,avx2=off",
    "max,la57=off,xlevel=0x80000008,erms=off,avx2=off,avx=off",
    "qemu64",
    "Nehalem",
    "Haswell-v4",
    "EPYC-v3",
]

# As crates/vmm starts its machines.
MACHINE = ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
MACHINE += ["-machine", "q35,usb=off,sata=off,smbus=off,vmport=off", "-accel", "tcg,thread=multi,tb-size=128"]
COMMAND_LINE = "console=ttyS1 quiet panic=-1 reboot=t tsc=reliable no_timer_check mitigations=off"


class Image:
    """The files of a built template."""

    def __init__(self, store, name):
        image = json.loads((store / "names" / f"{name}.json").read_text())["image"]
        manifest = json.loads((store / "images" / image / "manifest.json").read_text())
        kernel = store / "kernels" / manifest["kernel"]["id"]
        self.vmlinuz = kernel / "vmlinuz"
        self.virtio_blk = lzma.decompress((kernel / "modules/virtio_blk.ko.xz").read_bytes())
        self.root = store / "roots" / manifest["root"]["id"] / "root.img"
        self.memory_mib = manifest["recipe"]["memory_mib"]


def make_initrd(work, image):
    tree = work / "initrd"
    for folder in ["bin", "dev", "root"]:
        (tree / folder).mkdir(parents=True)
    shutil.copy(shutil.which("busybox"), tree / "bin/busybox")
    shutil.copy(HERE / "guest.py", tree)
    shutil.copy(HERE / "init.sh", tree / "init")
    (tree / "init").chmod(0o755)
    (tree / "virtio_blk.ko").write_bytes(image.virtio_blk)
    names = "\n".join(str(path.relative_to(tree)) for path in tree.rglob("*"))
    packed = subprocess.run(
        ["busybox", "cpio", "-o", "-H", "newc"], cwd=tree, input=names.encode(), capture_output=True, check=True
    )
    (work / "initrd.cpio").write_bytes(packed.stdout)
    return work / "initrd.cpio"


class Machine:
    """One running guest that does work on request."""

    def __init__(self, model, image, initrd, work):
        self.model = model
        self.log = work / f"{model.replace(',', '-')}.log"
        words = ["qemu-system-x86_64", *MACHINE, "-name", "bench,debug-threads=on"]
        words += ["-cpu", f"{model},vmx=off,svm=off", "-m", str(image.memory_mib)]
        words += ["-drive", f"if=virtio,file={image.root},format=raw,snapshot=on"]
        words += ["-kernel", str(image.vmlinuz), "-initrd", str(initrd), "-append", COMMAND_LINE]
        words += ["-serial", "stdio", "-serial", f"file:{self.log}"]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def ready(self):
        """The names of its pieces of work."""
        return self.line().split("|")[1:]

    def line(self):
        return self.process.stdout.readline().strip()

    def do(self, name):
        """Milliseconds of CPU time of the emulated CPU; ``None`` if the work failed."""
        before = self.cpu_ms()
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        return self.cpu_ms() - before if self.line() == "done" else None

    def cpu_ms(self):
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            if (task / "comm").read_text().startswith("CPU 0"):
                return int((task / "schedstat").read_text().split()[0]) / 1e6
        sys.exit(f"{self.model} has no CPU thread")

    def failure_reason(self):
        lines = self.log.read_text(errors="replace").splitlines()
        return next((line for line in lines if "trap" in line or "Error" in line), "it ended")

    def end(self):
        self.process.kill()
        self.process.wait()


def measure(machines, work, rounds):
    """The times for each piece of work and model (the first includes translation), and the models that finished."""
    times = {name: {machine.model: [] for machine in machines} for name in work}
    fit = list(machines)
    for number in range(rounds + 1):
        for name in work:
            for machine in random.sample(fit, len(fit)):
                took = machine.do(name)
                if took is None:
                    # Libraries select code by the model's name. It may use instructions that the emulation lacks.
                    print(f"\n{machine.model} cannot do `{name}`: {machine.failure_reason()}", file=sys.stderr)
                    fit.remove(machine)
                    continue
                times[name][machine.model].append(took)
        print(f"\rround {number} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return times, [machine.model for machine in fit]


def show(times, models):
    """A table of medians in milliseconds, and of their ratio to the first model's."""
    base, width = models[0], max(map(len, models))
    names = list(times)
    print(f"{'ms of processor time':{width}}", *(f"{name:>15}" for name in names), f"{'geometric mean':>15}")
    for pick, title in [(lambda row: row[0], "the first time"), (lambda row: statistics.median(row[1:]), "later, median")]:
        print(f"\n{title}")
        for model in models:
            values = {name: pick(times[name][model]) for name in names}
            ratios = [values[name] / pick(times[name][base]) for name in names]
            cells = (f"{values[name]:8.1f} ({ratio:4.2f})" for name, ratio in zip(names, ratios))
            mean = math.prod(ratios) ** (1 / len(ratios))
            print(f"{model:{width}}", *(f"{cell:>15}" for cell in cells), f"{mean:15.2f}")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--templates", type=pathlib.Path, required=True)
    options.add_argument("--template", default="code-interpreter")
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("models", nargs="*", default=MODELS)
    options = options.parse_args()
    image = Image(options.templates, options.template)
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        initrd = make_initrd(work, image)
        machines = []
        try:
            for model in options.models:
                machines.append(Machine(model, image, initrd, work))
            work_names = [machine.ready() for machine in machines][0]
            show(*measure(machines, work_names, options.rounds))
        finally:
            for machine in machines:
                machine.end()


if __name__ == "__main__":
    main()
