"""The bounds that are explored: where the whole protocol must hold, and where each removed step shows.

The bounds of a removal are the smallest that were found to show it; more faults only make the search longer.
"""

from __future__ import annotations

from dataclasses import dataclass

from .removals import Removal
from .state import Config, Faults


@dataclass(frozen=True)
class Shown:
    """Where a removed step shows, and which property breaks first."""

    config: Config
    breaks: str


BROKEN: dict[Removal, Shown] = {
    Removal.CHECK_AFTER_INIT: Shown(Config(faults=Faults(lost=1)), "fenced"),
    Removal.READY: Shown(Config(starts_active=False), "superseded"),
    Removal.READY_IN_TIME: Shown(Config(starts_active=False, faults=Faults(lost=1)), "superseded"),
    Removal.READY_AGAIN: Shown(Config(starts_active=False, faults=Faults(lost=1)), "superseded"),
    Removal.NONCE_BESIDE_EPOCH: Shown(Config(starts_active=False, faults=Faults(lost=1)), "superseded"),
    Removal.NONCE_BESIDE_NAME: Shown(Config(starts_active=False, same_name=True, faults=Faults(lost=1)), "fenced"),
    Removal.TAILS_AFTER_INIT: Shown(Config(), "chain"),
    Removal.TAILS_AGAIN: Shown(Config(faults=Faults(lost=1)), "chain"),
    Removal.CONTROL_AFTER_INIT: Shown(Config(starts_active=False), "one epoch once"),
    Removal.GATE_EXACT: Shown(Config(starts_active=False), "gated"),
    Removal.READ_BACK: Shown(Config(nodes=1, faults=Faults(lost=1)), "exactly once"),
    Removal.READ_BACK_AFTER_INIT: Shown(Config(nodes=1, faults=Faults(lost=1)), "exactly once"),
    Removal.FENCED_IS_NOT_FAILED: Shown(Config(faults=Faults(lost=1)), "outcome"),
    Removal.UNKNOWN_IS_NOT_FAILED: Shown(Config(nodes=1, faults=Faults(lost=1)), "outcome"),
    Removal.LAPSED_IS_NOT_FAILED: Shown(Config(nodes=1, faults=Faults(lost=1, lapses=1)), "outcome"),
    Removal.COUNTER_NOT_REWRITTEN: Shown(Config(nodes=1, starts_active=False, faults=Faults(lost=2)), "one epoch once"),
    Removal.HIGH_WATERMARK: Shown(Config(faults=Faults(lost=1, foreign=1)), "fenced"),
    Removal.TAILS_TO_HIGH_WATERMARK: Shown(Config(faults=Faults(foreign_wal=1)), "chain"),
    Removal.READ_BACK_TO_HIGH_WATERMARK: Shown(Config(nodes=1, faults=Faults(lost=1, foreign_wal=1)), "exactly once"),
    Removal.END_AFTER_INIT: Shown(Config(two_steps=True, faults=Faults(lost=1)), "fenced"),
    Removal.CLAIM_ABOVE_TAILS: Shown(Config(faults=Faults(tails=1)), "one epoch once"),
    Removal.NEWER_MARKER: Shown(Config(faults=Faults(tails=1)), "fenced"),
    Removal.CHECK_AFTER_DOUBT: Shown(Config(nodes=1, shards=2, groups=2, faults=Faults(lost=1)), "atomic"),
}

COURTESY: dict[Removal, str] = {
    Removal.CHECK_BEFORE_INIT: (
        "It only spares a successor the trouble: the check after the init finds the same, before anything is written. "
        "Without it a zombie fences its successor, which then checks, initialises and checks in its turn and goes on."
    ),
    Removal.EVERY_MARKER: (
        "A newer marker in one shard already proves it for a group of which that shard should hold a frame: the "
        "successor's init had settled the whole transaction before the marker was written. Waiting for every marker "
        "does not lean on that, and costs nothing but time on a node that is fenced anyway."
    ),
}

COURTESY_BOUNDS: tuple[Config, ...] = (
    Config(faults=Faults(lost=2, timeouts=1, lapses=1)),
    Config(shards=2, faults=Faults(lost=1, timeouts=1, lapses=1)),
    Config(starts_active=False, faults=Faults(lost=2)),
)

SHORT: dict[str, Config] = {
    "one_request_is_lost_and_each_node_activates_twice": Config(activations=2, faults=Faults(lost=1)),
    "requests_are_lost_nodes_crash_and_step_down_and_the_coordinator_times_out": Config(
        faults=Faults(lost=2, timeouts=1, crashes=1, lapses=1)
    ),
    "somebody_else_holds_a_transaction_open_in_the_control_partition": Config(
        faults=Faults(lost=1, timeouts=1, crashes=1, lapses=1, foreign=1)
    ),
    "somebody_else_holds_a_transaction_open_in_the_wal": Config(
        faults=Faults(lost=1, timeouts=1, crashes=1, lapses=1, foreign_wal=1)
    ),
    "groups_span_two_shards_and_somebody_else_holds_one_open": Config(shards=2, faults=Faults(lost=1, foreign_wal=1)),
    "the_counter_is_read_in_two_steps": Config(two_steps=True, faults=Faults(lost=1, timeouts=1, crashes=1)),
    "the_counter_loses_its_newest_rows": Config(faults=Faults(lost=1, crashes=1, tails=2)),
    "the_counter_loses_its_newest_row_while_it_is_read": Config(
        two_steps=True, faults=Faults(lost=1, timeouts=1, tails=1)
    ),
    "groups_span_two_shards": Config(shards=2, groups=2, faults=Faults(lost=1, timeouts=1)),
    "groups_span_two_shards_and_nodes_crash_or_step_down": Config(
        shards=2, faults=Faults(lost=1, timeouts=1, crashes=1, lapses=1)
    ),
    "nobody_is_active_and_both_begin_at_once": Config(
        starts_active=False, faults=Faults(lost=1, timeouts=1, crashes=1, lapses=1)
    ),
    "two_processes_run_under_one_name": Config(starts_active=False, same_name=True, faults=Faults(lost=1, timeouts=1)),
    "three_nodes_lose_no_request": Config(nodes=3, faults=Faults(timeouts=1)),
}

LONG: dict[str, Config] = {
    "two nodes, twice each, everything goes wrong once": Config(activations=2, faults=Faults(1, 1, 1, 1)),
    "two nodes, twice each, two requests lost": Config(activations=2, faults=Faults(lost=2, timeouts=1)),
    "two nodes, twice each, a foreign transaction": Config(activations=2, faults=Faults(lost=1, timeouts=1, foreign=1)),
    "two nodes, twice each, a foreign transaction in the WAL": Config(
        activations=2, faults=Faults(lost=1, timeouts=1, foreign_wal=1)
    ),
    "two nodes, twice each, the counter in two steps": Config(
        activations=2, two_steps=True, faults=Faults(lost=1, timeouts=1)
    ),
    "two nodes, twice each, the counter loses rows": Config(
        activations=2, two_steps=True, faults=Faults(lost=1, timeouts=1, tails=2)
    ),
    "two shards, two groups, everything goes wrong once": Config(shards=2, groups=2, faults=Faults(2, 1, 1, 1, 1)),
    "two shards, twice each": Config(shards=2, activations=2, faults=Faults(lost=1, lapses=1)),
    "three nodes": Config(nodes=3, faults=Faults(lost=1, timeouts=1)),
    "three nodes, one steps down": Config(nodes=3, starts_active=False, faults=Faults(lost=1, lapses=1)),
    "three nodes, two shards": Config(nodes=3, shards=2, faults=Faults(timeouts=1)),
}
