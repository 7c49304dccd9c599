"""What each command of the agent's day costs an emulated machine, and why.

Runs the commands one after another in one machine with Sandling's settings. The guest counts page faults, processes and
its own CPU time; QEMU counts translated blocks and flushed address translations.
"""

import pathlib
import statistics

from machine import Machine

COMMANDS = pathlib.Path(__file__).resolve().parents[1] / "src/agent_day/commands.txt"
COUNTED = {"TB count": "blocks", "TLB full flushes": "full_flushes", "TLB partial flushes": "partial_flushes"}
COLUMNS = ["cpu_ms", "user_ms", "system_ms", "faults", "processes", "switches", "full_flushes", "blocks"]


def profile(variant, image, initrd, work, rounds, record):
    """For each command its first time, and the median of later ones. `record` is called before the later ones."""
    machine = Machine(variant, image, initrd, work)
    try:
        machine.ready()
        commands = COMMANDS.read_text().splitlines()
        first = {command: measure(machine, command) for command in commands}
        with record(machine.process.pid):
            later = {command: [measure(machine, command) for _ in range(rounds)] for command in commands}
        return {
            command: {"first": first[command], "later": {name: median(runs, name) for name in runs[0]}}
            for command, runs in later.items()
            if first[command] and all(runs)
        }
    finally:
        machine.end()


def measure(machine, command):
    before = machine.translation()
    done = machine.do(command)
    after = machine.translation()
    if done is None:
        return None
    # A flush of all translated code sets the number of blocks back.
    return done | {name: max(after[key] - before[key], 0) for key, name in COUNTED.items() if key in after}


def median(runs, name):
    return statistics.median(run[name] for run in runs)


def table(profiled):
    """The later times, and the first one beside them."""
    yield " ".join([f"{'command':40}", f"{'first_ms':>9}", *(f"{name:>12}" for name in COLUMNS)])
    for command, of_command in profiled.items():
        later = of_command["later"]
        cells = [f"{later.get(name, 0):12.0f}" for name in COLUMNS]
        yield " ".join([f"{command[:40]:40}", f"{of_command['first']['cpu_ms']:9.0f}", *cells])
