"""`python -m tests.simulation --seeds N --seed S --mutation M`: run seeds, of the product or of a mutation of it.

Exit 0: no seed fails, or with a mutation, one does. A failing seed is printed with what does not hold; the same seed
runs the same way every time.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from tests.simulation.mutations import MUTATIONS
from tests.simulation.runner import run_seeds


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many (2000)")
    parser.add_argument("--seed", type=int, default=0, help="the first one (0)")
    parser.add_argument("--mutation", choices=sorted(MUTATIONS), help="a fault of the product, to be caught")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--list", action="store_true", help="name the mutations")
    chosen = parser.parse_args(arguments)
    if chosen.list:
        for name, one in sorted(MUTATIONS.items()):
            print(f"{name}: {one.wrong}")
        return 0
    began = time.monotonic()

    def progress(done: int) -> None:
        rate = done / max(1e-9, time.monotonic() - began)
        end = "\r" if sys.stderr.isatty() else "\n"
        print(f"{done} of {chosen.seeds} seeds, {rate:.0f}/s", end=end, file=sys.stderr, flush=True)

    failed = None
    operations = 0
    for result in run_seeds(chosen.seed, chosen.seeds, chosen.mutation, chosen.processes, progress):
        operations += result.digest[1]
        if result.violations:
            failed = result
            break
    if failed is None:
        print(f"{chosen.seeds} seeds from {chosen.seed}, {operations} operations: everything holds")
        return 0 if chosen.mutation is None else 1
    print(f"seed {failed.seed}:")
    for violation in failed.violations:
        print(f"  {violation}")
    again = f"python -m tests.simulation --seed {failed.seed} --seeds 1"
    print(f"replay: {again}" + (f" --mutation {chosen.mutation}" if chosen.mutation else ""))
    return 1 if chosen.mutation is None else 0


if __name__ == "__main__":
    sys.exit(main())
