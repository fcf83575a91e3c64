"""Measures what the parts of the path cost on real Kafka, on this machine: the table behind the design.

    python -m bench.baseline [--json] [--only transactions,...] [--rounds N] [--scale 0.1]

It starts an embedded broker in a temporary directory. Each figure is the median of its rounds; the spread is the
difference of the largest and the smallest round, as a share of the median. Figures go to standard output, progress to
standard error.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Annotated

import confluent_kafka
import typer
from rich.console import Console
from rich.table import Table

from bench.baseline_faust import measure_faust
from bench.baseline_rates import measure_aio, measure_producing, measure_protobuf, measure_rocksdict
from bench.baseline_support import Figure
from bench.baseline_transactions import measure_pattern, measure_sends, patterns
from journal.embedded.cluster import EmbeddedKafka
from journal.embedded.distribution import KAFKA_VERSION

LIBRDKAFKA_VERSION = str(confluent_kafka.libversion()[0])
SIZES = (1, 100, 1000, 5000)
PAUSES_MS = (1.0, 2.0, 3.0, 5.0)
Section = Callable[[str, int, float], Iterator[Figure]]


def transactions(bootstrap: str, rounds: int, scale: float) -> Iterator[Figure]:
    count = max(20, int(200 * scale))
    for operations in (1, 500):
        yield from measure_sends(bootstrap, operations, count, rounds)
    for pattern in patterns(SIZES, PAUSES_MS):
        yield from measure_pattern(bootstrap, pattern, count, rounds)


def producers(bootstrap: str, rounds: int, scale: float) -> Iterator[Figure]:
    yield from measure_producing(bootstrap, max(1000, int(200_000 * scale)), rounds)
    yield measure_aio(bootstrap, max(2000, int(40_000 * scale)), rounds)


def local(bootstrap: str, rounds: int, scale: float) -> Iterator[Figure]:
    yield from measure_rocksdict(max(1000, int(200_000 * scale)), rounds)
    yield from measure_protobuf(max(2, int(200 * scale)), rounds)


def faust(bootstrap: str, rounds: int, scale: float) -> Iterator[Figure]:
    yield measure_faust(bootstrap, "raw", max(1000, int(50_000 * scale)), rounds)
    yield measure_faust(bootstrap, "table", max(1000, int(10_000 * scale)), rounds)
    yield measure_faust(bootstrap, "frames", max(1000, int(1_000_000 * scale)), rounds)


SECTIONS: dict[str, Section] = {
    "transactions": transactions,
    "producers": producers,
    "local": local,
    "faust": faust,
}


def main(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    only: Annotated[str, typer.Option(help=f"Of {','.join(SECTIONS)}.")] = ",".join(SECTIONS),
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    scale: Annotated[float, typer.Option(min=0.001, help="Multiplies how much is done in a round.")] = 1.0,
) -> None:
    """Measure what the parts of the path cost, on an embedded broker of its own."""
    chosen = only.split(",")
    unknown = [name for name in chosen if name not in SECTIONS]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(SECTIONS)}", param_hint="--only")
    figures = []
    with tempfile.TemporaryDirectory() as directory, EmbeddedKafka(directory, attached=True) as kafka:
        for name in chosen:
            for figure in SECTIONS[name](kafka.bootstrap_servers, rounds, scale):
                print(f"{figure.what}: {figure.median:.4g} {figure.unit}", file=sys.stderr, flush=True)
                figures.append(figure)
    if as_json:
        print(json.dumps({"machine": machine(), "rounds": rounds, "figures": [to_json(figure) for figure in figures]}))
    else:
        show(figures)


def machine() -> dict[str, str | int | None]:
    return {
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "load_1_min": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        "kafka": KAFKA_VERSION,
        "confluent_kafka": version("confluent-kafka"),
        "librdkafka": LIBRDKAFKA_VERSION,
    }


def to_json(figure: Figure) -> dict[str, str | float]:
    return {"what": figure.what, figure.unit: round(figure.median, 4), "spread": round(figure.spread, 3)}


def show(figures: list[Figure]) -> None:
    table = Table(title=", ".join(f"{key} {value}" for key, value in machine().items()), title_justify="left")
    table.add_column("what", overflow="fold")
    table.add_column("unit")
    table.add_column("median", justify="right")
    table.add_column("spread", justify="right")
    for figure in figures:
        table.add_row(figure.what, figure.unit, f"{figure.median:,.4g}", f"{figure.spread:.0%}")
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
