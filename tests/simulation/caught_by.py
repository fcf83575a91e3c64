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
    "a_checkpoint_takes_all_there_is": 427,
    "a_failed_checkpoint_stays_as_large": 427,
    "a_group_of_nobodys_producer_has_failed": 25,
    "a_group_of_nobodys_producer_is_there": 25,
    "acknowledged_end_may_be_gone": 568,
    "age_is_by_the_own_clock": 32,
    "any_passed_marker_is_the_next": 1860,
    "claim_follows_a_wal_that_lost_its_end": 53,
    "claim_is_not_proven": 27,
    "commit_comes_first_in_its_run": 116,
    "copy_is_written_before_the_commit": 115,
    "counter_alone_counts": 35,
    "counter_and_gate_know_no_nonce": 35,
    "counter_is_claimed_blindly": 35,
    "end_is_captured_once": 54,
    "fenced_is_failed": 50,
    "frame_that_met_the_disk_is_passed_over": 150,
    "kept_shard_is_fenced_and_not_read": 55,
    "marks_of_a_compacted_log_are_states": 97,
    "newer_markers_are_ignored": 74,
    "no_check_after_init": 65,
    "no_ready": 57,
    "nobody_counts": 306,
    "read_back_ends_at_the_last_stable_offset": 75,
    "read_back_is_not_proven": 75,
    "read_only_load_ends_at_the_last_stable_offset": 89,
    "repeated_checkpoint_is_trusted": 29,
    "repeated_commit_is_trusted": 45,
    "rows_are_lost_in_an_abort": 16,
    "sleep_is_no_time": 23,
    "stale_copy_is_kept": 13,
    "table_is_not_proven": 36,
    "table_is_read_before_init": 21,
    "tails_end_at_the_last_stable_offset": 30,
    "the_writer_looks_into_the_copy": 78,
    "the_writer_looks_into_the_copy_now_and_then": 37,
    "trim_goes_beyond_the_tables": 14,
    "trimmed_frames_were_never_there": 113,
    "unreadable_table_stops_for_good": 114,
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
