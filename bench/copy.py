"""Measures `sandling cp`: 3,000 small files and a large one, in a directory and alone, in and out, beside bubblewrap.

    bench/copy.py --sandling SANDLING --templates DIRECTORY [--rounds N]

The peer copies the same files through `tar`, or `cat` for a single one, into and out of a bubblewrap sandbox, in turns with
Sandling, so that a busy moment affects both. Each round uses a new sandbox, and last copies the small files again right
after their removal: ext4 without a journal does not reuse inodes that were removed less than five minutes ago, and looks at
all of them for each new file. DIRECTORY has the template `base`. Prints a table and writes all figures to
bench/out/copy.json.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FILES, FILE_BYTES, LARGE_BYTES = 3_000, 2_000, 100_000_000
ROWS = {
    "files in": f"{FILES:,} files of {FILE_BYTES // 1000} kB into a sandbox",
    "files out": "the same out of it",
    "files again": "the same into it, after they were removed",
    "large in": f"{LARGE_BYTES // 1_000_000} MB in a directory into a sandbox",
    "large out": "the same out of it",
    "one in": f"{LARGE_BYTES // 1_000_000} MB in one file into a sandbox",
    "one out": "the same out of it",
}


def run(*command, **options):
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stdout.decode()}")
    return done.stdout.decode().strip()


def timed(*command):
    begun = time.perf_counter()
    run(*command)
    return time.perf_counter() - begun


def make_files(work):
    source = random.Random(1)
    for number in range(FILES):
        directory = work / "files" / str(number // 100)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{number}.txt").write_bytes(source.randbytes(FILE_BYTES))
    (work / "large").mkdir()
    (work / "large/data").write_bytes(source.randbytes(LARGE_BYTES))
    (work / "one").hardlink_to(work / "large/data")


class Sandling:
    def __init__(self, arguments, work):
        home = {"SANDLING_HOME": str(work / "home"), "SANDLING_TEMPLATES": str(Path(arguments.templates).resolve())}
        self.binary = str(Path(arguments.sandling).resolve())
        os.environ.update(home)
        serving = [self.binary, "serve", "--listen", "127.0.0.1:0", "--standbys", "0"]
        self.server = subprocess.Popen(serving, stdout=subprocess.DEVNULL, stderr=(work / "log").open("w"))

    def begin(self):
        self.sandbox = run(self.binary, "create", "--template", "base", "--ttl", "1h")

    def copy_in(self, source, name):
        return timed(self.binary, "cp", str(source), f"{self.sandbox}:/root/{name}")

    def copy_out(self, name, target):
        return timed(self.binary, "cp", f"{self.sandbox}:/root/{name}", str(target))

    def remove(self, name):
        run(self.binary, "exec", self.sandbox, "rm", "-r", f"/root/{name}")

    def end(self):
        run(self.binary, "rm", self.sandbox)

    def stop(self):
        self.server.terminate()
        self.server.wait()


class Bubblewrap:
    def __init__(self, work):
        self.root = work / "bubblewrap"

    def begin(self):
        self.root.mkdir()

    def tar(self, line, *arguments):
        inside = "bwrap --unshare-all --ro-bind / / --bind \"$1\" /tmp"
        return timed("sh", "-euc", line.replace("SANDBOX", inside), "sh", str(self.root), *map(str, arguments))

    def copy_in(self, source, name):
        if source.is_file():
            return self.tar('SANDBOX sh -c "cat > /tmp/$3" < "$2"', source, name)
        return self.tar('tar -C "$2" -cf - . | SANDBOX sh -c "mkdir /tmp/$3 && tar -C /tmp/$3 -xf -"', source, name)

    def copy_out(self, name, target):
        if (self.root / name).is_file():
            return self.tar('SANDBOX cat "/tmp/$2" > "$3"', name, target)
        target.mkdir()
        return self.tar('SANDBOX tar -C "/tmp/$2" -cf - . | tar -C "$3" -xf -', name, target)

    def remove(self, name):
        remove(self.root / name)

    def end(self):
        self.root.rmdir()


def remove(path):
    path.unlink() if path.is_file() else shutil.rmtree(path)


def measure(contender, work, figures):
    contender.begin()
    for kind in ("large", "one", "files"):
        figures[f"{kind} in"].append(contender.copy_in(work / kind, "copy"))
        figures[f"{kind} out"].append(contender.copy_out("copy", work / "copy"))
        run("diff", "-r", str(work / kind), str(work / "copy"))
        contender.remove("copy")
        remove(work / "copy")
    figures["files again"].append(contender.copy_in(work / "files", "copy"))
    contender.remove("copy")
    contender.end()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sandling", required=True)
    parser.add_argument("--templates", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        make_files(work)
        contenders = {"sandling": Sandling(arguments, work), "bubblewrap": Bubblewrap(work)}
        figures = {name: {row: [] for row in ROWS} for name in contenders}
        try:
            for _ in range(arguments.rounds):
                for name, contender in contenders.items():
                    measure(contender, work, figures[name])
        finally:
            contenders["sandling"].stop()
    print("| what | sandling s | tar and bubblewrap s | ratio |\n|---|---|---|---|")
    for row, what in ROWS.items():
        own, peer = (statistics.median(figures[name][row]) for name in ("sandling", "bubblewrap"))
        print(f"| {what} | {own:.2f} | {peer:.2f} | {own / peer:.0f} |")
    out = Path(__file__).resolve().parent / "out/copy.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
