"""From `Sandbox.create()` to the result of `1+1`: through E2B's public Python package, and through Sandling's own.

    conformance/e2b/run.sh installs the package; then, with a server that runs (`sandling serve`):

    E2B_API_KEY=… E2B_API_URL=… E2B_SANDBOX_URL=… SANDLING_API=… SANDLING_TOKEN=… \
      PYTHONPATH=sdk/python/src target/conformance/e2b/python/bin/python bench/e2b.py [--rounds 20]

Both take turns within one run, so that a busy moment hits both. The client's own time is part of it.
"""

import argparse
import statistics
import time

from e2b_code_interpreter import Sandbox as Theirs
from sandling import Sandbox as Ours


def theirs():
    sandbox = Theirs.create()
    text = sandbox.run_code("1+1").text
    return sandbox, text


def ours():
    sandbox = Ours.create(template="code-interpreter")
    text = sandbox.run_code("print(1+1)").stdout.strip()
    return sandbox, text


def measure(run):
    begun = time.perf_counter()
    sandbox, text = run()
    took = (time.perf_counter() - begun) * 1e3
    sandbox.kill()
    assert text == "2", text
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    times = {theirs: [], ours: []}
    for run in times:
        measure(run)  # The first one of each also makes connections and loads code.
    for _ in range(rounds):
        for run, taken in times.items():
            taken.append(measure(run))
    print(f"{'create, run, from a standby where there is one':50} p50 ms  p95 ms")
    for run, name in ((theirs, "E2B's package"), (ours, "Sandling's own")):
        p95 = statistics.quantiles(times[run], n=20)[-1] if rounds > 1 else times[run][0]
        print(f"{name:50} {statistics.median(times[run]):6.1f}  {p95:6.1f}")


if __name__ == "__main__":
    main()
