"""One seed for each mutation that few seeds catch: it is tried first.

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
    "a_group_of_nobodys_producer_has_failed": 66,
    "a_group_of_nobodys_producer_is_there": 66,
    "a_portion_counts_for_all": 11,
    "a_refused_group_is_there": 11,
    "acknowledged_end_may_be_gone": 323,
    "age_is_by_the_own_clock": 32,
    "checkpoint_within_a_group": 19,
    "claim_follows_a_wal_that_lost_its_end": 170,
    "claim_is_not_proven": 253,
    "commit_comes_first_in_its_run": 56,
    "control_is_read_to_the_last_stable_offset": 35,
    "copy_is_written_before_the_commit": 86,
    "counter_alone_counts": 35,
    "counter_and_gate_know_no_nonce": 35,
    "counter_is_claimed_blindly": 35,
    "deadline_is_failed": 10,
    "end_is_captured_once": 129,
    "fenced_is_failed": 28,
    "followed_updates_are_missed": 145,
    "kept_shard_is_fenced_and_not_read": 86,
    "leftovers_survive_the_marker": 30,
    "marks_of_a_compacted_log_are_states": 42,
    "newer_markers_are_ignored": 37,
    "no_check_after_init": 57,
    "no_ready": 57,
    "nobody_counts": 129,
    "nonce_is_ignored": 10,
    "read_back_before_init": 18,
    "read_back_ends_at_the_last_stable_offset": 46,
    "read_back_is_not_proven": 104,
    "read_only_load_ends_at_the_last_stable_offset": 54,
    "repeated_checkpoint_is_trusted": 12,
    "repeated_commit_is_trusted": 45,
    "sleep_is_no_time": 23,
    "stale_copy_is_kept": 13,
    "table_is_not_proven": 36,
    "table_is_read_before_init": 13,
    "tails_end_at_the_last_stable_offset": 30,
    "the_writer_looks_into_the_copy": 78,
    "the_writer_looks_into_the_copy_now_and_then": 37,
    "trim_goes_beyond_the_tables": 14,
    "unreadable_table_stops_for_good": 34,
    "unreadable_wal_is_failed": 53,
    "wall_is_the_time": 376,
    "what_is_refused_does_not_come_again": 10,
    "without_a_coordinator_a_group_has_failed": 50,
    "without_a_coordinator_a_group_is_there": 63,
}

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
