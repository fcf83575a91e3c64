"""Of mutations that few seeds catch, one that does: it is tried first.

A seed's life changes with the product and with the simulation. One that catches nothing any more costs only time, as
all seeds are tried in turn then. `python -m tests.simulation.caught_by` prints the table anew, in a few minutes.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.mutations import MUTATIONS
from tests.simulation.runner import run_some

SEEDS_MAX = 2000

CAUGHT_BY: dict[str, int] = {
    "doubtful_ready_is_trusted": 28,
    "end_is_captured_once": 93,
    "fenced_is_failed": 132,
    "followed_updates_are_missed": 142,
    "frame_that_met_the_disk_is_passed_over": 92,
    "kept_shard_is_fenced_and_not_read": 58,
    "late_ready_is_accepted": 28,
    "marks_of_a_compacted_log_are_states": 217,
    "newer_markers_are_ignored": 77,
    "no_ready": 32,
    "read_back_before_init": 47,
    "read_back_ends_at_the_last_stable_offset": 1289,
    "unreadable_rows_are_absent": 92,
}

NOT_SOUGHT = frozenset(
    {
        "copy_is_written_before_the_commit",
        "end_is_captured_once",
        "fenced_is_failed",
        "followed_updates_are_missed",
        "frame_that_met_the_disk_is_passed_over",
        "kept_shard_is_fenced_and_not_read",
        "leftovers_survive_the_marker",
        "marks_of_a_compacted_log_are_states",
        "no_ready",
        "nobody_counts",
        "position_is_written_before_its_rows",
        "read_back_ends_at_the_last_stable_offset",
        "ready_is_numbered_without_looking",
        "repeated_checkpoint_is_trusted",
        "rows_are_lost_in_an_abort",
        "runs_go_on_behind_a_commit",
        "sleep_is_no_time",
        "table_is_read_before_init",
        "tails_before_init",
        "tails_end_at_the_last_stable_offset",
        "trim_goes_beyond_the_tables",
        "unreadable_rows_are_absent",
        "unreadable_table_stops_for_good",
        "what_is_refused_does_not_come_again",
    }
)
"""Mutations that no seed is known to catch since seeds live through more. No test asks for them until one is known:
`python -m tests.simulation.caught_by` looks for it."""

_SOON = 25
"""One of the first seeds is found soon enough without a table."""


def first_seed(mutation: str) -> int | None:
    """The first seed that catches it, of those that count."""
    last = run_some(range(SEEDS_MAX), mutation)[-1]
    return last.seed if last.violations else None


def main() -> None:
    names = sorted(MUTATIONS)
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for name, seed in zip(names, pool.map(first_seed, names), strict=True):
            if seed is None or seed >= _SOON:
                print(f'    "{name}": {seed},', flush=True)


if __name__ == "__main__":
    main()
