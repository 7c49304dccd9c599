"""Makes tasks for harbor and pushes their images: what `conformance/harbor/run.sh` runs.

    tasks.py SANDLING FOLDER PORT

The arguments are those of conformance/oci/support.py. The images share a layer with Debian and Python. Each has another one
with the files of its task, and its own environment, user and directory. `built/dockerfile` has a Dockerfile.
"""

import io
import subprocess
import tarfile

from images import directory, entry, layer, symlink, write_layout
from support import folder, push, registry

DEBIAN = subprocess.run(
    ["mmdebstrap", "--quiet", "--variant=minbase", "--include=python3-minimal", "--format=tar", "bookworm", "-"],
    check=True,
    stdout=subprocess.PIPE,
).stdout

CONFIG = """\
schema_version = "1.4"

[verifier]
timeout_sec = 600.0

[agent]
timeout_sec = 600.0

[environment]
build_timeout_sec = 1800.0
{source}
cpus = 1
memory_mb = 1024
"""

#: Writes the reward 1 if the last line of the check succeeds.
TEST = """\
#!/bin/bash
if {check}; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
"""


def archive():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        info = tarfile.TarInfo("letters/answer")
        info.size = 3
        tar.addfile(info, io.BytesIO(b"42\n"))
    return out.getvalue()


def task(name, instruction, solution, check, files, workdir="/app", **config):
    """A task whose image has these files in its second layer."""
    image = f"tasks/{name}:1"
    write_layout(folder / "image", [DEBIAN, layer(directory(b"app"), *files)], "gzip", {"WorkingDir": workdir, **config})
    push(folder / "image", image)
    source = f'docker_image = "{registry}/{image}"\nworkdir = "{workdir}"'
    write_task(folder / "tasks" / name, source, instruction, solution, check, {".keep": ""})


def write_task(path, source, instruction, solution, check, environment):
    for file, text in {
        "task.toml": CONFIG.format(source=source),
        "instruction.md": instruction + "\n",
        "solution/solve.sh": f"#!/bin/bash\nset -e\n{solution}\n",
        "tests/test.sh": TEST.format(check=check),
        **{f"environment/{name}": content for name, content in environment.items()},
    }.items():
        (path / file).parent.mkdir(parents=True, exist_ok=True)
        (path / file).write_text(text)


task(
    "environment",
    "Write the value of the variable GREETING to greeting.txt in the current directory.",
    'echo "$GREETING" >greeting.txt',
    '[ "$(cat /srv/work/greeting.txt)" = "hello from the image" ]',
    [directory(b"srv/work")],
    workdir="/srv/work",
    Env=["PATH=/usr/local/bin:/usr/bin:/bin", "GREETING=hello from the image"],
)
task(
    "python",
    "/app/fibonacci.py prints the wrong number. Correct it: its output is the tenth Fibonacci number, 55.",
    "sed -i 's/a - b/a + b/' /app/fibonacci.py",
    '[ "$(python3 /app/fibonacci.py)" = 55 ]',
    [entry(b"app/fibonacci.py", content=b"a, b = 0, 1\nfor _ in range(10):\n    a, b = b, a - b\nprint(a)\n")],
)
task(
    "archive",
    "Unpack /app/letters.tar.gz into /app.",
    "tar -xzf letters.tar.gz",
    '[ "$(cat /app/letters/answer)" = 42 ]',
    [entry(b"app/letters.tar.gz", content=archive())],
)
task(
    "owners",
    "Give /app/report to the user daemon and the group staff. Nobody else may read it.",
    "chown daemon:staff /app/report\nchmod 0640 /app/report",
    '[ "$(stat -c %U:%G:%a /app/report)" = daemon:staff:640 ]',
    [entry(b"app/report", content=b"report\n", mode=0o666)],
)
task(
    "links",
    "Replace every symbolic link in /app with a copy of its target.",
    'for link in *; do [ ! -L "$link" ] || cp --remove-destination "$(readlink "$link")" "$link"; done',
    '[ -z "$(find /app -type l)" ] && [ "$(cat /app/one /app/two)" = "$(printf "1\\n1\\n")" ]',
    [entry(b"app/number", content=b"1\n"), symlink(b"app/one", b"number"), symlink(b"app/two", b"number")],
)
write_task(
    folder / "built" / "dockerfile",
    'network_mode = "no-network"',
    "Reverse the lines of letters in the current directory.",
    "tac letters >reversed && mv reversed letters",
    '[ "$(tr -d "\\n" </srv/built/letters) $KIND" = "cba built" ]',
    {
        "Dockerfile": f"FROM {registry}/tasks/python:1\nENV KIND=built\nWORKDIR /srv/built\nCOPY letters .\n",
        "letters": "a\nb\nc\n",
    },
)
