"""Since when the example's messages wait."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from journal.load.loading import LoadedUpdate
from journal.store.message_records import encode_message
from journal.store.model import Message
from journal.v1.store_pb2 import MESSAGE, ROUTE
from streams.agents.changes import LiveRecord

EXAMPLE = Path(__file__).parents[3] / "examples" / "queue_alerts" / "alerts.py"
QUEUE = 5


@pytest.fixture(scope="module")
def alerts() -> ModuleType:
    spec = importlib.util.spec_from_file_location("queue_alerts", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("timestamp", "due", "since"), [(1000, 0, [1000]), (1000, 9000, [9000]), (9000, 1000, [9000]), (0, 0, [])]
)
def test_a_message_waits_since_it_was_sent_or_is_due(
    alerts: ModuleType, timestamp: int, due: int, since: list[int]
) -> None:
    data = encode_message(Message("orders", b"x", timestamp=timestamp, due=due))
    record = LiveRecord(7, MESSAGE, data, [LoadedUpdate(ROUTE, b"", False, QUEUE, (1, 0, 0))], (1, 0, 0))
    keys = [alerts.WAITING_KEY.unpack(key) for key in alerts.waiting_keys(record)]
    assert keys == [(b"w", QUEUE, each, 7) for each in since]
