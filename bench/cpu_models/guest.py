"""Inside a machine: does a piece of work whenever its name comes on stdin, and says so when it is done."""

import json
import re
import subprocess
import sys

import numpy

TEXT = " ".join(f"word{n} {n * n} name{n}@example.org" for n in range(1500))
RECORDS = [{"id": n, "name": f"name {n}", "tags": ["a", "b", str(n)], "value": n / 3} for n in range(1200)]
MATRIX = numpy.random.default_rng(1).random((240, 240))


def loop():
    total = 0
    for n in range(300_000):
        total += n * n % 7
    return total


def calls():
    def fibonacci(n):
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    return fibonacci(20)


def text():
    json.loads(json.dumps(RECORDS))
    return len(re.findall(r"(\w+)@(\w+)\.org", TEXT))


def matmul():
    result = MATRIX
    for _ in range(4):
        result = result @ MATRIX
    return float(result[0, 0])


def elementwise():
    values = numpy.arange(300_000) / 7.0
    return float(numpy.sort(numpy.sin(values) * values + values**2).sum())


def command(*words):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout


WORK = {
    "python loop": loop,
    "python calls": calls,
    "json, regex": text,
    "numpy matmul": matmul,
    "numpy sort, sin": elementwise,
    "python3 start": lambda: command("python3", "-c", "import json, re"),
    "node start": lambda: command("node", "-e", "console.log(1 + 1)"),
}

print("ready", *WORK, sep="|", flush=True)
for line in sys.stdin:
    WORK[line.strip()]()
    print("done", flush=True)
