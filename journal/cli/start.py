"""The entry point of the console script: Ctrl-C ends the process without a traceback while modules are imported."""

from __future__ import annotations

from journal.process.interrupts import end_at_interrupts


def main() -> None:
    """Run the command line."""
    end_at_interrupts()
    from journal.cli.main import main as run

    run()
