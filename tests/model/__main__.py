"""The long form: `python -m tests.model` explores large bounds and every removal; with options, bounds of one's own.

Progress on stderr, the table (or with --json one object) on stdout. Exit 1 if the protocol breaks where it must hold,
or holds where it must break.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass, replace

from .cases import BROKEN, COURTESY, COURTESY_BOUNDS, LONG
from .explorer import Liveness, Result, explore
from .removals import Removal
from .state import Config, Faults


@dataclass(frozen=True)
class Run:
    """One search, and whether it has to find a violation."""

    name: str
    config: Config
    must_break: bool = False

    def is_as_it_must(self, result: Result) -> bool:
        """A search that was stopped early has shown nothing, but nothing wrong either."""
        return (result.broken is not None) is self.must_break


def all_runs() -> list[Run]:
    """The removals first, which take seconds; then the large bounds."""
    runs = [Run(f"without {r.name}", replace(shown.config, removed=r), True) for r, shown in BROKEN.items()]
    for removal in COURTESY:
        runs += [Run(f"without {removal.name} (courtesy)", replace(c, removed=removal)) for c in COURTESY_BOUNDS]
    return runs + [Run(name, config) for name, config in LONG.items()]


def parse(arguments: list[str]) -> argparse.Namespace:
    """Without any bound: all runs."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    for bound in ("nodes", "shards", "groups", "activations", *Faults._fields):
        parser.add_argument(f"--{bound.replace('_', '-')}", type=int, metavar="N")
    parser.add_argument("--nobody-active", action="store_true", help="begin without an active node")
    parser.add_argument("--same-name", action="store_true", help="all processes run under one node name")
    parser.add_argument("--two-steps", action="store_true", help="read the counter in two steps")
    parser.add_argument("--without", choices=[removal.name for removal in Removal], help="the step to remove")
    parser.add_argument("--liveness", action="store_true", help="check also that every node alone becomes active")
    parser.add_argument("--states-max", type=int, default=5_000_000, metavar="N")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def chosen_run(options: argparse.Namespace) -> Run | None:
    """The one search that the options ask for, if they ask for one."""
    given = {name: value for name, value in vars(options).items() if value is not None}
    faults = {name: given[name] for name in Faults._fields if name in given}
    sizes = {name: given[name] for name in ("nodes", "shards", "groups", "activations") if name in given}
    flags = {"starts_active": not options.nobody_active, "same_name": options.same_name, "two_steps": options.two_steps}
    if (
        not faults
        and not sizes
        and not options.nobody_active
        and not options.same_name
        and not options.two_steps
        and not options.without
    ):
        return None
    removed = Removal[options.without] if options.without else None
    config = Config(**sizes, **flags, faults=Faults(**faults), removed=removed)
    return Run("as asked", config, must_break=removed is not None and removed not in COURTESY)


def search(run: Run, options: argparse.Namespace) -> Result:
    """One search, with a line of progress about every quarter of a million states."""
    told = 0

    def tell(states: int, depth: int) -> None:
        nonlocal told
        if states - told >= 250_000:
            told = states
            print(f"{run.name}: {states} states, {depth} steps deep", file=sys.stderr, flush=True)

    also = Liveness(run.config) if options.liveness else None
    return explore(run.config, states_max=options.states_max, progress=tell, also=also)


def line(run: Run, result: Result) -> str:
    """One line of the table."""
    if result.broken is not None:
        found = f"broken in {len(result.trace)} steps"
    else:
        found = "holds" if result.complete else "nothing found, stopped"
    wrong = "" if run.is_as_it_must(result) else "  <-- must " + ("break" if run.must_break else "hold")
    return f"{run.name:<52} {found:<22} {result.states:>10} {result.depth:>5} {result.seconds:>8.1f}{wrong}"


def main(arguments: list[str]) -> int:
    """Runs what is asked for; the exit code."""
    options = parse(arguments)
    one = chosen_run(options)
    runs = [one] if one else all_runs()
    found = []
    if not options.json:
        print(f"{'':<52} {'found':<22} {'states':>10} {'depth':>5} {'seconds':>8}", flush=True)
    for run in runs:
        result = search(run, options)
        found.append((run, result))
        if not options.json:
            print(line(run, result), flush=True)
            if result.broken is not None and (one or not run.must_break):
                print(result)
    if options.json:
        rows = [{"name": run.name, "as_it_must": run.is_as_it_must(result), **asdict(result)} for run, result in found]
        print(json.dumps({"runs": rows}))
    return 0 if all(run.is_as_it_must(result) for run, result in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
