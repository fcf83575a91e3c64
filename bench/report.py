"""`make bench` runs every bench in turn, and writes each one's results to a file under bench/results/.

python -m bench.report [NAME ...] [--quick] [--directory bench/results]
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import confluent_kafka
import psutil
import typer

from bench import activate, append, audit, failover, load, process, routes, selectors, shards, sources, store
from bench.rounds import Comparison, Figures, Outcome, say
from bench.scene import Scene, make_scene
from journal.embedded.distribution import KAFKA_VERSION


def _spark(scene: Scene) -> Outcome:
    # PySpark is an extra, so it is imported only here.
    from bench import spark

    return spark.run(scene)


BENCHES: dict[str, Callable[[Scene], Outcome]] = {
    "append": append.run,
    "process": process.run,
    "load": load.run,
    "activate": activate.run,
    "store": store.run,
    "failover": failover.run,
    "routes": routes.run,
    "sources": sources.run,
    "spark": _spark,
    "audit": audit.run,
    "shards": shards.run,
}


def _amqp_engine(quick: bool) -> Outcome:
    # proton is in the extra for development, so it is imported only here.
    from bench import amqp_engine

    return amqp_engine.run(quick)


WITHOUT_KAFKA: dict[str, Callable[[bool], Outcome]] = {
    "amqp_engine": _amqp_engine,
    "selectors": selectors.run,
}
"""Benches of parts that know no Kafka; they are told whether to be quick."""


def run_bench(name: str, bootstrap: str | None, quick: bool) -> Outcome:
    """Runs one bench, on an embedded broker unless `bootstrap` names brokers."""
    if name in WITHOUT_KAFKA:
        return WITHOUT_KAFKA[name](quick)
    with make_scene(bootstrap, quick) as scene:
        return BENCHES[name](scene)


def machine() -> Figures:
    """Describes the machine, and the versions of what runs on it."""
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


def as_document(name: str, quick: bool, described: Figures, outcome: Outcome) -> dict[str, Any]:
    """Returns one bench's results: figures by key, and the comparisons as rows of a table."""
    return {
        "bench": name,
        "quick": quick,
        "machine": described,
        "comparisons": [_row(comparison) for comparison in outcome.comparisons],
        **outcome.as_figures(),
    }


def _row(comparison: Comparison) -> list[str]:
    figures = comparison.figures()
    name, unit = comparison.name, comparison.unit
    ours, limit = figures[f"{name}_{unit}"], figures[f"{name}_limit_{unit}"]
    ratio, spread = figures[f"{name}_ratio"], figures[f"{name}_ratio_spread_percent"]
    return [name, f"{ours:,}", f"{limit:,}", unit, str(ratio), f"{spread} %", str(comparison.target)]


INTRODUCTION = """\
Each row compares the journal ("ours") with a limit: the same work as a competent user would do it without the
journal. Both are medians of rounds that ran in turn on one machine. The ratio is the median of the rounds' ratios,
and a larger one is better: for times it is the limit's over ours. The spread is the difference of the largest and the
smallest ratio, in percent of the median, and the target is the ratio that is wanted. The tables after the first one
have, for each bench, the machine and figures that stand alone. The first lines of `bench/NAME.py` say what a bench
compares; `python -m bench NAME` measures it again."""


def as_markdown(documents: Sequence[dict[str, Any]]) -> str:
    """Returns a page with the results of all benches, for people."""
    lines = ["# Results of `make bench`", "", INTRODUCTION, ""]
    lines += ["| comparison | ours | limit | unit | ratio | spread | target |", "|---|---|---|---|---|---|---|"]
    lines += ["| " + " | ".join(row) + " |" for document in documents for row in document["comparisons"]]
    for document in documents:
        quick = ", quick: rough" if document["quick"] else ""
        lines += ["", f"| {document['bench']}{quick} | |", "|---|---|"]
        lines += [f"| {key} | {value} |" for key, value in document["machine"].items()]
        lines += [f"| {key} | {value:,} |" for key, value in document.items() if _is_figure(document, key)]
    return "\n".join(lines) + "\n"


def _is_figure(document: dict[str, Any], key: str) -> bool:
    """Returns whether a key is a figure that is no part of a comparison."""
    compared = tuple(row[0] for row in document["comparisons"])
    return isinstance(document[key], int | float) and key != "quick" and not key.startswith(compared)


def main(
    names: Annotated[list[str] | None, typer.Argument(help="The benches to run; without names all of them.")] = None,
    quick: Annotated[bool, typer.Option(help="Run fewer rounds with fewer operations.")] = False,
    directory: Annotated[Path, typer.Option(help="The directory for NAME.json and results.md.")] = Path(
        "bench/results"
    ),
) -> None:
    """Run benches. Each result goes to a file of its own when the bench is over, and all of them to results.md."""
    known = [*BENCHES, *WITHOUT_KAFKA]
    for name in names or known:
        if name not in known:
            raise typer.BadParameter(f"there is no bench {name}: {', '.join(known)}")
    directory.mkdir(parents=True, exist_ok=True)
    for name in names or known:
        described, began = machine(), time.monotonic()
        document = as_document(name, quick, described, run_bench(name, None, quick))
        say(f"{name} took {time.monotonic() - began:.0f} s")
        (directory / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        there = [directory / f"{each}.json" for each in known if (directory / f"{each}.json").exists()]
        found = [json.loads(path.read_text(encoding="utf-8")) for path in there]
        (directory / "results.md").write_text(as_markdown(found), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
