"""Metrics in Prometheus' text format, which prometheus-client writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4"
"""The type of that text, which is in UTF-8."""

Sample = tuple[Mapping[str, object], float]
"""A sample: its labels and its value."""


class Family(NamedTuple):
    """A metric and its samples. Its name has a base unit, and a counter's name ends in `_total`."""

    name: str
    """The name without the prefix `kafka_journal_`."""
    kind: str
    """`gauge` or `counter`."""
    about: str
    samples: Iterable[Sample]


def exposition(families: Iterable[Family]) -> str:
    """The text that a scrape gets."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    return generate_latest(registry).decode()


class _Families:
    """A collector of families."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for name, kind, about, samples in self._families:
            full = f"kafka_journal_{name}"
            metric = Metric(full.removesuffix("_total"), about, kind)
            for labels, value in samples:
                metric.add_sample(full, {label: str(of) for label, of in labels.items()}, value)
            yield metric
