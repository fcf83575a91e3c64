"""`make bench`: every bench in turn, into bench/results/ with a description of the machine.

python -m bench.report [--quick] [--directory bench/results]
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import confluent_kafka
import psutil
import typer

from bench import activate, append, load, process, store
from bench.rounds import Comparison, Figures, Outcome, say
from bench.scene import Scene, make_scene
from journal.kafka.distribution import KAFKA_VERSION

BENCHES: dict[str, Callable[[Scene], Outcome]] = {
    "append": append.run,
    "process": process.run,
    "load": load.run,
    "activate": activate.run,
    "store": store.run,
}


def run_bench(name: str, bootstrap: str | None, quick: bool) -> Outcome:
    """One bench, on a broker of its own unless `bootstrap` names one."""
    with make_scene(bootstrap, quick) as scene:
        return BENCHES[name](scene)


def machine() -> Figures:
    """What the figures were measured on."""
    return {
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 0,
        "memory_mb": round(psutil.virtual_memory().total / 2**20),
        "load_1_min": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "kafka": KAFKA_VERSION,
        "confluent_kafka": version("confluent-kafka"),
        "librdkafka": str(confluent_kafka.libversion()[0]),
        "rocksdict": version("rocksdict"),
        "protobuf": version("protobuf"),
        "faust_streaming": version("faust-streaming"),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def as_markdown(described: Figures, outcomes: dict[str, Outcome]) -> str:
    """What a person wants to see of it."""
    lines = ["# Results of `make bench`", "", "| machine | |", "|---|---|"]
    lines += [f"| {key} | {value} |" for key, value in described.items()]
    lines += ["", "| comparison | ours | limit | unit | ratio | spread | target |", "|---|---|---|---|---|---|---|"]
    for outcome in outcomes.values():
        lines += [_row(comparison) for comparison in outcome.comparisons]
    for name, outcome in outcomes.items():
        lines += ["", f"| {name} | |", "|---|---|"]
        lines += [f"| {key} | {value:,} |" for key, value in outcome.figures.items() if not isinstance(value, str)]
    return "\n".join(lines) + "\n"


def _row(comparison: Comparison) -> str:
    figures = comparison.figures()
    name, unit = comparison.name, comparison.unit
    ours, limit = figures[f"{name}_{unit}"], figures[f"{name}_limit_{unit}"]
    ratio, spread = figures[f"{name}_ratio"], figures[f"{name}_ratio_spread_percent"]
    return f"| {name} | {ours:,} | {limit:,} | {unit} | {ratio} | {spread} % | {comparison.target} |"


def main(
    quick: Annotated[bool, typer.Option(help="Fewer rounds and operations.")] = False,
    directory: Annotated[Path, typer.Option(help="Where results.json and results.md go.")] = Path("bench/results"),
) -> None:
    """Runs every bench and writes what it found."""
    described = machine()
    outcomes: dict[str, Outcome] = {}
    for name in BENCHES:
        began = time.monotonic()
        outcomes[name] = run_bench(name, None, quick)
        say(f"{name} took {time.monotonic() - began:.0f} s")
    directory.mkdir(parents=True, exist_ok=True)
    found = {name: outcome.as_figures() for name, outcome in outcomes.items()}
    document = {"machine": described, "quick": quick, **found}
    (directory / "results.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    (directory / "results.md").write_text(as_markdown(described, outcomes), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
