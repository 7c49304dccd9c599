"""Compares variants: all machines run side by side and do each piece of work in turns, in a changing order.

So a busy moment of the host affects all of them. The CPU time of the emulated processors is compared, which other
programs disturb far less than the wall clock.
"""

import math
import random
import sys

from machine import Machine


def compare(variants, image, initrd, work, options):
    """The measurements of each variant that finished: work → one measurement per round, the first one cold."""
    machines = []
    try:
        for variant in variants:
            machines.append(Machine(variant, image, initrd, work))
        known = [machine.ready() for machine in machines][0]
        if unknown := set(options.work) - set(known):
            sys.exit(f"there is no work {', '.join(sorted(unknown))}; there is {', '.join(known)}")
        return measure(machines, options.work or known, options.rounds)
    finally:
        for machine in machines:
            machine.end()


def measure(machines, names, rounds):
    measured = {machine.variant.name: {name: [] for name in names} for machine in machines}
    fit = list(machines)
    for number in range(rounds + 1):
        for name in names:
            for machine in random.sample(fit, len(fit)):
                done = machine.do(name)
                if done is None:
                    # Libraries select code by the model's name. It may use instructions that the emulation lacks.
                    print(f"\n{machine.variant.name} cannot do `{name}`: {machine.failure_reason()}", file=sys.stderr)
                    fit.remove(machine)
                    del measured[machine.variant.name]
                    continue
                measured[machine.variant.name][name].append(done)
        print(f"\rround {number} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return measured


def summarize(measured, clock="cpu_ms"):
    """For each variant and piece of work, the first time and the least of the later ones, in milliseconds.

    Other programs only ever add to a time, through the caches that they share with it.
    """
    return {
        variant: {
            name: {"first": runs[0][clock], "later": min(run[clock] for run in runs[1:])}
            for name, runs in of_variant.items()
        }
        for variant, of_variant in measured.items()
    }


def table(summary, base, when):
    """A row for each variant: its time for each piece of work, as a ratio to the base, and their geometric mean."""
    names = list(summary[base])
    width = max(map(len, summary))
    yield " ".join([f"{when:{width}}", *(f"{name:>13}" for name in names), f"{'mean':>6}"])
    for variant, of_variant in summary.items():
        values = {name: of_variant[name][when] for name in names}
        ratios = [max(values[name], 0.01) / max(summary[base][name][when], 0.01) for name in names]
        cells = [f"{values[name]:6.0f} ({ratio:4.2f})" for name, ratio in zip(names, ratios, strict=True)]
        mean = math.prod(ratios) ** (1 / len(ratios))
        yield " ".join([f"{variant:{width}}", *(f"{cell:>13}" for cell in cells), f"{mean:6.2f}"])
