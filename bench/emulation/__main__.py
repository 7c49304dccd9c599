"""What emulation costs, and which of its options help.

Boots a template's image in machines that differ in one option, and lets them do the same work. With --profile it shows
where the time of the agent's day goes instead. Writes bench/out/emulation-*.json.

    bench/run.sh --emulation [--group features] [--qemu 10.0=DIRECTORY] [--rounds 5]
"""

import argparse
import json
import pathlib
import shutil
import tempfile

import command_profile
import compare
import hot_code
from machine import Image, Variant, make_initrd
from variants import GROUPS, SANDLING, qemus


def named_directory(text):
    name, separator, directory = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text} is not NAME=DIRECTORY")
    return name, pathlib.Path(directory).absolute()


def compare_group(name, variants, image, initrd, work, options):
    measured = compare.compare(variants, image, initrd, work, options)
    base = variants[0].name
    lines = [f"{name}: CPU time in ms, and as a ratio to {base}"]
    summary = compare.summarize(measured)
    for when in ["first", "later"]:
        lines += compare.table(summary, base, when)
    lines.append("the same by the wall clock")
    lines += compare.table(compare.summarize(measured, "ms"), base, "later")
    print("\n".join(lines), flush=True)
    (options.out / f"emulation-{name}.json").write_text(json.dumps(measured, indent=1))


def profile(variant, image, initrd, work, options):
    data = work / "perf.data"
    profiled = command_profile.profile(
        variant, image, initrd, work, options.rounds, lambda pid: hot_code.recorded(pid, data)
    )
    print("\n".join(command_profile.table(profiled)))
    result = {"commands": profiled}
    if data.exists():
        root = variant.qemu or pathlib.Path("/")
        result["hot"] = hot_code.summarize(data, root / "usr/bin/qemu-system-x86_64")
        for kind, share in result["hot"]["kinds"].items():
            print(f"{share:6.1%} {kind}")
        for name, share in result["hot"]["functions"].items():
            print(f"{share:6.1%}   {name}")
    (options.out / "emulation-profile.json").write_text(json.dumps(result, indent=1))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--templates", type=pathlib.Path, required=True)
    options.add_argument("--template", default="agent")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--group", action="append", choices=GROUPS, help="all of them by default")
    options.add_argument("--work", action="append", default=[], help="a piece of work; all of them by default")
    options.add_argument("--qemu", action="append", type=named_directory, default=[], metavar="NAME=DIRECTORY")
    options.add_argument("--profile", action="store_true")
    options.add_argument("--out", type=pathlib.Path, default=pathlib.Path("bench/out"))
    options = options.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    image = Image(options.templates, options.template)
    with tempfile.TemporaryDirectory() as place:
        work = pathlib.Path(place)
        initrd = make_initrd(work, image)
        if options.profile:
            variants = [Variant(name, qemu=root) for name, root in options.qemu] or [SANDLING]
            for variant in variants:
                profile(variant, image, initrd, work, options)
            return
        groups = {} if options.qemu and not options.group else {name: GROUPS[name] for name in options.group or GROUPS}
        if options.qemu:
            groups["qemu"] = qemus(dict(options.qemu))
        for name, variants in groups.items():
            machines = pathlib.Path(tempfile.mkdtemp(dir=work))
            compare_group(name, variants, image, initrd, machines, options)
            shutil.rmtree(machines)


if __name__ == "__main__":
    main()
