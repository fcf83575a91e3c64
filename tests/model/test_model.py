"""The protocol holds in every reachable state of small bounds, and each step that bears load is shown to bear it.

A failure prints the shortest trace. `python -m tests.model` explores larger bounds.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from .__main__ import main
from .cases import BROKEN, COURTESY, COURTESY_BOUNDS, SHORT
from .explorer import NODE_STEPS, Liveness, explore, steps
from .properties import broken_outcome, broken_state, broken_wal
from .removals import Removal
from .state import At, Config, Faults, Frame, Kind, Outcome

MARKER = Frame(1, Kind.MARKER, None, 0)
GROUP = Frame(1, Kind.GROUP, 0, 1)


@pytest.mark.parametrize("config", SHORT.values(), ids=SHORT)
def test_the_protocol_holds_when(config: Config) -> None:
    result = explore(config)
    assert result.broken is None, result
    assert result.complete


@pytest.mark.parametrize("removal", BROKEN, ids=lambda removal: removal.name.lower())
def test_the_protocol_breaks_without(removal: Removal) -> None:
    shown = BROKEN[removal]
    result = explore(replace(shown.config, removed=removal))
    assert result.broken is not None, f"{removal.name} bears no load in these bounds: {removal.value}"
    assert result.broken.startswith(f"{shown.breaks}:"), result


@pytest.mark.parametrize("removal", BROKEN, ids=lambda removal: removal.name.lower())
def test_the_protocol_with_all_its_steps_holds_in_the_bounds_that_show_what_breaks_without(removal: Removal) -> None:
    result = explore(BROKEN[removal].config)
    assert result.broken is None, result


@pytest.mark.parametrize("config", COURTESY_BOUNDS, ids=["one_shard", "two_shards", "nobody_active"])
@pytest.mark.parametrize("removal", COURTESY, ids=lambda removal: removal.name.lower())
def test_what_is_only_courtesy_can_go_without_harm(removal: Removal, config: Config) -> None:
    result = explore(replace(config, removed=removal))
    assert result.broken is None, f"{removal.name} is no mere courtesy: {COURTESY[removal]}\n{result}"


def test_every_removal_is_either_shown_to_break_the_protocol_or_called_courtesy() -> None:
    assert {*BROKEN, *COURTESY} == set(Removal)
    assert not set(BROKEN) & set(COURTESY)


@pytest.mark.parametrize(
    "config",
    [
        Config(faults=Faults(1, 1, 1, 1, 1)),
        Config(faults=Faults(lost=1, timeouts=1, foreign_wal=1)),
        Config(shards=2, faults=Faults(lost=1, timeouts=1)),
    ],
    ids=["one_shard_and_every_fault", "somebody_elses_transaction_in_the_wal", "two_shards"],
)
def test_every_node_left_alone_becomes_active_from_every_state(config: Config) -> None:
    result = explore(config, also=Liveness(config))
    assert result.broken is None, result


def test_liveness_tells_of_a_node_that_waits_for_a_marker_nobody_wrote() -> None:
    config = Config(nodes=1)
    waiting = config.start().node(0, at=At.GATE, epoch=2, loaded=None)
    assert Liveness(config)(waiting) == "alive: node 0 alone stays gate"


def test_a_trace_leads_from_the_start_to_the_state_before_the_violation() -> None:
    config = replace(BROKEN[Removal.CHECK_AFTER_INIT].config, removed=Removal.CHECK_AFTER_INIT)
    world = config.start()
    result = explore(config)
    for label in result.trace:
        assert broken_state(world) is None
        world = dict(steps(config, world))[label]
    assert broken_state(world) == result.broken


def test_a_group_written_twice_breaks_exactly_once() -> None:
    assert (broken_wal(((MARKER, GROUP, GROUP._replace(previous=2)),)) or "").startswith("exactly once")


def test_an_acknowledged_group_that_one_shard_lacks_breaks_durable() -> None:
    assert (broken_outcome(((MARKER, GROUP), (MARKER,)), (Outcome.DONE,)) or "").startswith("durable")


def test_a_node_has_a_step_wherever_it_may_stand() -> None:
    assert set(NODE_STEPS) == set(At)


def test_the_command_says_by_its_exit_code_whether_a_step_bears_load_in_these_bounds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--nodes", "1", "--lost", "1", "--without", "READ_BACK"]) == 0
    assert main(["--nodes", "1", "--lost", "0", "--without", "READ_BACK"]) == 1
    assert "<-- must break" in capsys.readouterr().out
