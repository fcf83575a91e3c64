"""Tests with a long form: `make chaos` runs it, or KAFKA_JOURNAL_TEST_LONG=1 does. The short one is in every run."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

NAME = "KAFKA_JOURNAL_TEST_LONG"
LONG = os.environ.get(NAME) == "1"

long_form = pytest.mark.skipif(not LONG, reason=f"takes minutes: `make chaos` runs it, or set {NAME}=1")
"""The mark of tests that have no short form."""

BROKERS = 3 if LONG else 1
"""The number of brokers for tests that kill some (the fixture `brokers`)."""


def seed(otherwise: int) -> int:
    """What a test draws from; said first, so that the same may be drawn once more."""
    return int(os.environ.get("KAFKA_JOURNAL_TEST_SEED", otherwise))


def summary(way: str, seed: int, messages: int, faults: Mapping[str, int], seconds: float) -> str:
    """What a long form has come through, in a line."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(faults.items()))
    return f"{way}: {messages:,} messages, {sum(faults.values())} faults ({kinds}), {seconds:.0f} s, seed {seed}"
