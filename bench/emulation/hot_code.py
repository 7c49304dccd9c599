"""Where QEMU's own time goes, from perf's samples of the emulated processors.

Debian's QEMU has no debug symbols, but it exports its global functions. A sample counts for the exported function that
precedes it, and functions are grouped by what they do. Samples outside of every file are translated code.
"""

import bisect
import collections
import contextlib
import pathlib
import re
import subprocess

# The first match counts. `static` functions count for the exported one before them, mostly of the same source file.
KINDS = [
    ("page walks, TLB fills", r"tlb_fill|get_phys|x86_cpu|mmu|excp|probe_access|tlb_set_page|tlb_vaddr"),
    ("TLB and jump cache flushes", r"tlb_flush|tlb_reset|tb_flush_jmp|cpu_tlb|tlb_"),
    (
        "memory access by helpers",
        r"^(helper_)?(be|le|ret|full)?_?(ld|st)[a-z0-9_]*(mmu|ra)|cpu_(ld|st)|(load|store)_helper",
    ),
    ("device and MMIO access", r"memory_region|address_space|flatview|apic|virtio|pci_|hpet|io_|blk_|bdrv_"),
    ("finding translated code", r"lookup_tb|tb_htable|tb_lookup|qht_|cpu_exec|tb_jmp|cpu_get_tb"),
    ("translating code", r"tcg_|gen_|translator|tb_|liveness|temp_|optimize|disas|ld_code|plugin"),
    ("interrupts and exceptions", r"interrupt|exception|raise|iret|syscall|sysret|seg_|svm"),
    ("vector instructions", r"helper_.*_(xmm|ymm|mmx)|float|helper_(gvec|p[a-z]+)"),
    ("other instructions by helpers", r"^helper_|^cpu_"),
]


@contextlib.contextmanager
def recorded(pid, data):
    """Samples the threads of the process in the block. Without perf it does nothing."""
    words = ["perf", "record", "--quiet", "--event", "cpu-clock", "--freq", "199"]
    words += ["--pid", str(pid), "--output", str(data)]
    try:
        sampling = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except FileNotFoundError:
        yield
        return
    try:
        yield
    finally:
        sampling.terminate()
        sampling.wait()


def exported(program):
    """Addresses and names of the functions that a program exports, in order."""
    listed = subprocess.run(["nm", "--dynamic", "--defined-only", program], capture_output=True, text=True, check=True)
    found = [line.split() for line in listed.stdout.splitlines()]
    functions = sorted((int(address, 16), name) for address, kind, name in found if kind in "TtWi")
    return [address for address, _ in functions], [name for _, name in functions]


def load_offset(program):
    """What to add to an offset in the file to get an address in the program's code."""
    words = ["readelf", "--program-headers", "--wide", program]
    shown = subprocess.run(words, capture_output=True, text=True, check=True)
    for line in shown.stdout.splitlines():
        words = line.split()
        if words[:1] == ["LOAD"] and "E" in "".join(words[6:-1]):
            return int(words[2], 16) - int(words[1], 16), int(words[1], 16)
    raise ValueError(f"{program} has no code")


def samples(data):
    """Program, address in it, and symbol of each sample of an emulated processor."""
    words = ["perf", "script", "--input", str(data), "--fields", "comm,ip,sym,symoff,dso", "--show-mmap-events"]
    script = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    base = {}
    for line in script.splitlines():
        mapped = re.search(r"\[(0x\w+)\((0x\w+)\) @ (0x\w+|0) .*r-xp (\S+)", line)
        if mapped:
            start, _, offset, name = mapped.groups()
            base[name] = int(start, 16) - int(offset, 16)
            continue
        sample = re.match(r"\s*CPU \d+/TCG\s+([0-9a-f]+) (.*?) \((.*)\)$", line)
        if sample:
            address, symbol, name = sample.groups()
            yield name, int(address, 16) - base.get(name, 0), symbol


def summarize(data, program):
    """The share of each kind of code in the samples, and the most frequent functions."""
    addresses, names = exported(program)
    code, _ = load_offset(program)
    kinds, functions = collections.Counter(), collections.Counter()
    for file, offset, symbol in samples(data):
        if pathlib.Path(file).name == pathlib.Path(program).name:
            index = bisect.bisect(addresses, offset + code) - 1
            name = names[max(index, 0)]
            kinds[next((kind for kind, pattern in KINDS if re.search(pattern, name)), "other parts of QEMU")] += 1
            functions[name] += 1
        elif file.startswith("[k"):
            kinds["the host's kernel"] += 1
            functions[f"kernel: {symbol.partition('+')[0]}"] += 1
        elif file.startswith(("[", "//anon", "/memfd", "anon")) or re.search(r"perf-\d+\.map", file):
            # perf names anonymous code after the file in which a just-in-time compiler could describe it.
            kinds["translated code"] += 1
        else:
            kinds["libraries"] += 1
            functions[f"{pathlib.Path(file).name}: {symbol.partition('+')[0]}"] += 1
    total = max(sum(kinds.values()), 1)
    shares = {kind: count / total for kind, count in kinds.most_common()}
    return {"samples": total, "kinds": shares, "functions": {name: n / total for name, n in functions.most_common(25)}}
