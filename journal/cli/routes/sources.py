"""`kafka-journal routes resume-source` lets a source go on that a record or a partition has stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from journal.cli.common import Chosen, JsonOption, YesOption, confirm, journal_command, operator, print_json, print_line
from journal.cli.control_socket.client import find_node
from journal.cli.optional_value import OptionalValueCommand
from journal.cli.places import NodeOption
from journal.cli.standard_streams import note_done
from journal.process.commands import command


def add_sources(app: typer.Typer) -> None:
    """Add the command to those of `routes`."""
    app.command("resume-source", cls=OptionalValueCommand)(resume_source)


@journal_command
def resume_source(
    chosen: Chosen,
    source: Annotated[str, typer.Argument(help="The source's name.")],
    skip: Annotated[bool, typer.Option("--skip", help="Pass over the record that has stopped the source.")] = False,
    node: NodeOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Let a stopped source go on, once its cause is mended. This asks the active node, on that node's machine.

    With --skip the record that stopped the source is passed over for good: its offset is committed, and no message is
    made of it.
    """
    settings = chosen.settings()
    with find_node(settings, node or "") as client:
        if skip:
            confirm(f"pass over the record that has stopped source {source}, for good?", yes=yes)
        done = client.resume_source(source, skip=skip, operator=operator())
    note_done(f"source {source} goes on")
    if as_json:
        print_json(dict(done))
    else:
        without = f" without {done['skipped']}" if done["skipped"] else ""
        print_line(f"source {source} goes on{without}; {command('status')} shows whether it stays so")
