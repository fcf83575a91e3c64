"""`python -m bench activate`: an activation's gate, and how an activation's time grows with the live records.

The limit of the gate is the same round trip by bare Kafka clients. Both are timed from the end of the first
transaction's commit until the last shard's answer is read.
"""

from __future__ import annotations

import os
import statistics

from bench import limits
from bench.rounds import Comparison, Figures, Outcome, Series, alternate, say
from bench.scene import Memory, Scene, worker
from bench.workload import append_live
from journal.activate.activation import ActivationReport
from journal.config import Settings
from journal.journal import BlockingJournal

LIVE = (1_000, 10_000, 100_000, 1_000_000)
LIVE_SHARDS = 8


def run(scene: Scene) -> Outcome:
    outcome = Outcome()
    memory = Memory()
    with memory.watch(node_and_bench=os.getpid(), broker=scene.broker_pid):
        for shards in (1, 8):
            comparison, figures = _gate(scene, shards)
            outcome.comparisons.append(comparison)
            outcome.figures |= figures
        outcome.figures |= _live(scene, memory)
    outcome.figures |= memory.figures()
    return outcome


def activate(settings: Settings) -> ActivationReport:
    """Activates a node once; the node then leaves."""
    with BlockingJournal(settings) as journal:
        return journal.activate()


# ---- the gate --------------------------------------------------------------------------------------------------------


def _gate(scene: Scene, shards: int) -> tuple[Comparison, Figures]:
    name = f"activate_gate_{shards}_shard{'s' if shards > 1 else ''}"
    bare = limits.BareGate(scene.bootstrap, shards)
    reports: list[ActivationReport] = []

    def gate_ms() -> float:
        reports.append(activate(settings))
        return reports[-1].gate_s * 1000

    with scene.journal(shards) as settings, worker(settings):
        activate(settings)
        rounds = scene.rounds() if scene.quick else 4 * scene.rounds()
        ours, limit = alternate(rounds, gate_ms, lambda: bare.run().gate_s * 1000, what=f"{name}, ms")
    bare.close()
    parts = {
        "fence": [report.fence_s for report in reports],
        "claim": [report.claim_s for report in reports],
        "ready": [report.ready_s for report in reports],
    }
    figures: Figures = {}
    for part, seconds in parts.items():
        series = Series(f"activate_{part}_{shards}_shard{'s' if shards > 1 else ''}", "ms", [s * 1000 for s in seconds])
        figures |= series.figures()
    return Comparison(name, "ms", ours, limit, 0.5, less_is_better=True), figures


# ---- against live rows -----------------------------------------------------------------------------------------------


def _live(scene: Scene, memory: Memory) -> Figures:
    """Measures activations with a warm copy, their loads, and the slope of both against the number of live records."""
    figures: Figures = {}
    counts = [count for count in LIVE if not scene.quick or count <= LIVE[-1] // 20]
    totals: list[float] = []
    loads: list[float] = []
    for count in counts:
        with scene.journal(LIVE_SHARDS) as settings, worker(settings) as pid, memory.watch(worker=pid):
            with BlockingJournal(settings) as journal:
                journal.activate()
                append_live(journal, count)
            activate(settings)
            reports = [activate(settings) for _ in range(3)]
        totals.append(statistics.median(_total_s(report) for report in reports))
        loads.append(statistics.median(report.load_s for report in reports))
        figures |= {
            f"activate_{count}_records_s": round(totals[-1], 3),
            f"activate_{count}_records_load_s": round(loads[-1], 4),
        }
        say(f"activation with {count:,} records: {totals[-1]:.3f} s, of it load {loads[-1]:.3f} s")
    slope, _ = statistics.linear_regression(counts, loads)
    figures["activate_load_slope_us_per_record"] = round(slope * 1e6, 2)
    figures["activate_load_correlation_of_records_and_s"] = round(statistics.correlation(counts, loads), 4)
    slope, intercept = statistics.linear_regression(counts, totals)
    figures["activate_slope_us_per_record"] = round(slope * 1e6, 2)
    figures["activate_intercept_s"] = round(intercept, 3)
    return figures


def _total_s(report: ActivationReport) -> float:
    return report.fence_s + report.claim_s + report.gate_s + report.load_s + report.ready_s
