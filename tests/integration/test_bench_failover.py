"""`bench failover` in its quick form: every figure is there, and only the cold take-over is cold."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(540)]

_TIMEOUT_S = 480.0


def test_bench_failover_compares_take_over_hand_over_and_kill(bootstrap: str) -> None:
    command = [sys.executable, "-m", "bench", "failover", "--quick", "--json", "-b", bootstrap]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    print(ended.stderr, file=sys.stderr)
    assert ended.returncode == 0
    figures = json.loads(ended.stdout)
    forms = [f"{what}_node_{form}" for what in ("hand_over", "kill") for form in ("alone", "with_worker")]
    for compared in ("warm_1000_messages", *forms):
        assert figures[f"failover_{compared}_ratio"] > 0
        assert figures[f"failover_{compared}_ratio_target"] > 0
    for taken in ("warm_1000_messages", "cold_1000_messages", *forms):
        for part in ("noticed", "started", "fence", "claim", "gate", "load", "ready", "callback", "served"):
            assert f"failover_parts_{taken}_{part}_ms" in figures
    for warm in ("warm_1000_messages", *forms):
        assert figures[f"failover_parts_{warm}_warm"] == "1 of 1", warm
    assert figures["failover_parts_cold_1000_messages_warm"] == "0 of 1"
    assert figures["failover_cold_1000_messages_ratio"] > 0
    assert 0 < figures["failover_warm_1000_messages_ratio_to_gate_alone"] < figures["failover_warm_1000_messages_ratio"]
