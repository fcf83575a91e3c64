"""Seeds of the whole product: everything holds. `make simulate SEEDS=…` runs more; a failure says how to replay it."""

from __future__ import annotations

import pytest

from tests.simulation.__main__ import main
from tests.simulation.runner import run_seed, run_some
from tests.simulation.world import OPERATIONS_MIN

SEEDS = 300
IN_A_TEST = 100
"""So that the test processes share the seeds."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, SEEDS, IN_A_TEST))
def test_everything_holds_in_every_seed(first: int) -> None:
    results = run_some(range(first, first + IN_A_TEST))
    for result in results:
        assert result.violations == [], f"python -m tests.simulation --seed {result.seed} --seeds 1"
    whole = [result for result in results if not result.cut_short]
    assert len(whole) >= IN_A_TEST * 0.8, "losses end so many seeds that too few see the rest"
    for result in whole:
        _, operations, activations, moves, compactions, zombies = result.digest
        assert operations >= OPERATIONS_MIN, result
        assert activations >= 3, result
        assert moves >= 2, result
        assert compactions >= 1, result
        assert zombies >= 1, result
    assert len(results) == IN_A_TEST
    assert sum(result.own_decisions >= 3 for result in results) >= IN_A_TEST * 0.05, "standbys take over by themselves"


@pytest.mark.parametrize("seed", range(5))
def test_a_seed_runs_the_same_way_every_time(seed: int) -> None:
    assert run_seed(seed) == run_seed(seed)


def test_a_failing_seed_fails_the_same_way_every_time() -> None:
    first = run_some(range(100), "no_read_back")[-1]
    assert first.violations
    assert run_seed(first.seed, "no_read_back") == first


def test_the_command_says_by_its_exit_code_whether_everything_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "4", "--processes", "2"]) == 0
    assert "everything holds" in capsys.readouterr().out
    assert main(["--seeds", "1", "--processes", "1", "--mutation", "mark_first"]) == 0
    assert "replay: python -m tests.simulation --seed 0 --seeds 1 --mutation mark_first" in capsys.readouterr().out
