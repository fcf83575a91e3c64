"""Seeds for each mutation that few seeds catch: they are tried first.

A seed's life changes with the product and with the simulation. Where none of a mutation's seeds catches it any more,
this costs only time, because all seeds are then tried in turn. So there are several, and they seldom all fail at once:
what a seed plans to happen, which is what makes it rare, mostly stays. `python -m tests.simulation.caught_by` prints
the table anew.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from itertools import chain

from tests.simulation.mutations import MUTATIONS
from tests.simulation.runner import Result, run_seed, run_some

SEEDS_MAX = 2000

CAUGHT_BY: dict[str, tuple[int, ...]] = {
    "a_failed_checkpoint_stays_as_large": (124,),
    "a_group_of_nobodys_producer_has_failed": (112, 25, 66),
    "a_group_of_nobodys_producer_is_there": (112, 25, 66),
    "a_portion_counts_for_all": (11,),
    "a_recovery_forgets_what_was_too_large": (124, 83),
    "a_refused_group_is_there": (11,),
    "acknowledged_end_may_be_gone": (599, 323, 568),
    "age_is_by_the_own_clock": (13, 32),
    "any_mark_follows": (122, 58),
    "any_passed_marker_is_the_next": (1860,),
    "checkpoint_within_a_group": (19, 23, 25),
    "claim_follows_a_wal_that_lost_its_end": (527, 53, 170),
    "claim_is_not_proven": (58, 253, 27),
    "control_is_read_to_the_last_stable_offset": (35, 34),
    "copy_does_not_say_that_it_builds_again": (4, 14),
    "copy_is_written_before_the_commit": (18, 97, 115),
    "copy_of_another_topic_is_kept": (118, 58),
    "counter_alone_counts": (35,),
    "counter_and_gate_know_no_nonce": (35,),
    "counter_is_claimed_blindly": (35,),
    "deadline_is_failed": (37, 10, 42),
    "doubtful_ready_is_trusted": (28, 1232, 490),
    "end_is_captured_once": (250, 104, 129),
    "fenced_is_failed": (145, 11, 50),
    "followed_updates_are_missed": (2, 143, 142),
    "frame_that_met_the_disk_is_passed_over": (71, 5, 150),
    "gate_at_least": (26, 1),
    "kept_shard_is_fenced_and_not_read": (55, 86, 58),
    "late_ready_is_accepted": (28, 276, 174),
    "leftovers_survive_the_marker": (30, 1),
    "marks_of_a_compacted_log_are_states": (34, 42, 97),
    "newer_markers_are_ignored": (74, 37, 77),
    "no_check_after_init": (40, 57, 65),
    "no_ready": (32, 57, 35),
    "nobody_counts": (129, 58, 306),
    "nonce_is_ignored": (10, 12, 61),
    "portions_out_of_order": (11,),
    "position_is_written_before_its_rows": (68, 86, 103),
    "read_back_before_init": (2, 18, 44),
    "read_back_ends_at_the_last_stable_offset": (46, 75, 175),
    "read_back_is_not_proven": (2, 104, 75),
    "read_only_load_ends_at_the_last_stable_offset": (54, 89, 38),
    "ready_is_numbered_without_looking": (6,),
    "repeated_checkpoint_is_trusted": (79, 29, 310),
    "repeated_commit_is_trusted": (33, 45, 28),
    "rows_are_lost_in_an_abort": (11, 16),
    "sleep_is_no_time": (24, 17, 23),
    "staged_operations_take_effect_at_once": (5,),
    "stale_copy_is_kept": (10, 13),
    "table_is_not_proven": (36,),
    "table_is_read_before_init": (13, 21, 61),
    "tails_end_at_the_last_stable_offset": (23, 30),
    "taken_in_is_sent_again": (27, 35, 108),
    "the_writer_looks_into_the_copy": (78,),
    "the_writer_looks_into_the_copy_now_and_then": (4, 62, 37),
    "trim_goes_beyond_the_tables": (10, 14),
    "trimmed_frames_were_never_there": (326, 113),
    "unreadable_rows_are_absent": (71, 5, 92),
    "unreadable_table_stops_for_good": (133, 114, 34),
    "unreadable_wal_is_failed": (53,),
    "wall_is_the_time": (17, 376),
    "without_a_coordinator_a_group_has_failed": (457, 460, 50),
    "without_a_coordinator_a_group_is_there": (457, 225, 63),
}

_SOON = 4
"""A mutation that one of so many first seeds catches is found soon enough without a table."""

_KEPT = 3
"""Number of seeds that a row keeps."""


def caught(mutation: str) -> Result | None:
    """The first life that catches a mutation: of the seeds of its row, or else of all that count, in turn."""
    last = run_some(chain(CAUGHT_BY.get(mutation, ()), range(SEEDS_MAX)), mutation)[-1]
    return last if last.violations else None


def row(mutation: str) -> tuple[int, ...]:
    """A mutation's row anew: seeds that catch it, then those that did. It is empty if none that counts catches it."""
    known = CAUGHT_BY.get(mutation, ())
    still = [seed for seed in known if run_seed(seed, mutation).violations]
    if not still and (found := caught(mutation)):
        still = [found.seed]
    return (*still, *(seed for seed in known if seed not in still))[:_KEPT] if still else ()


def main() -> None:
    names = sorted(MUTATIONS)
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for name, seeds in zip(names, pool.map(row, names), strict=True):
            if not seeds or max(seeds) >= _SOON:
                print(f'    "{name}": {seeds},', flush=True)


if __name__ == "__main__":
    main()
