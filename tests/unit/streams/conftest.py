"""Fixtures of these tests: both sides of the calls between a reader and its worker."""

from __future__ import annotations

from tests.unit.streams.calls_scene import sides as sides
from tests.unit.streams.reader_scene import child as child
from tests.unit.streams.reader_scene import worker as worker
