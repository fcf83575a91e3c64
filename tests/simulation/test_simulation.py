"""Seeds of the whole product: everything holds. `make simulate SEEDS=…` runs more; a failure says how to replay it."""

from __future__ import annotations

import os

import pytest

from tests.simulation.__main__ import main
from tests.simulation.runner import run_seed, run_seeds, run_some
from tests.simulation.world import OPERATIONS_MIN

SEEDS = 2000


@pytest.mark.timeout(600)
def test_everything_holds_in_every_seed() -> None:
    done = 0
    for result in run_seeds(0, SEEDS, None, min(2, os.cpu_count() or 1), lambda done: None):
        assert result.violations == [], f"python -m tests.simulation --seed {result.seed} --seeds 1"
        _, operations, activations, moves, compactions, zombies = result.digest
        assert operations >= OPERATIONS_MIN, result
        assert activations >= 3, result
        assert moves >= 2, result
        assert compactions >= 1, result
        assert zombies >= 1, result
        done += 1
    assert done == SEEDS


@pytest.mark.parametrize("seed", range(5))
def test_a_seed_runs_the_same_way_every_time(seed: int) -> None:
    assert run_seed(seed) == run_seed(seed)


def test_a_failing_seed_fails_the_same_way_every_time() -> None:
    first = run_some(range(100), "no_read_back")[-1]
    assert first.violations
    assert run_seed(first.seed, "no_read_back") == first


def test_the_command_says_by_its_exit_code_whether_everything_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--processes", "1"]) == 0
    assert "everything holds" in capsys.readouterr().out
    assert main(["--seeds", "1", "--processes", "1", "--mutation", "mark_first"]) == 0
    assert "replay: python -m tests.simulation --seed 0 --seeds 1 --mutation mark_first" in capsys.readouterr().out
