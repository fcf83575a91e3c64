"""The broker that all clients' programs share, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes.child import Child, program


@contextmanager
def running_broker(directory: Path) -> Iterator[str]:
    """The URL of a broker whose local journal and log are in the directory."""
    child = Child("broker", program("amqp_broker", directory / "journal"), directory / "log", listens=True).start()
    try:
        yield child.wait_for("listens")["url"]
        child.stop()
        assert "Traceback" not in child.log(), child.told()
    finally:
        child.process.kill()
