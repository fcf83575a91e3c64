"""`--node`: with a value, without one, and not at all."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from journal.cli.optional_value import OptionalValueCommand
from journal.cli.places import NodeOption

app = typer.Typer(add_completion=False)


@app.command(cls=OptionalValueCommand)
def tell(queue: str, node: NodeOption = None, yes: bool = False) -> None:
    print([queue, node, yes])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["q"], ["q", None, False]),
        (["q", "--node"], ["q", "", False]),
        (["q", "--node", "--yes"], ["q", "", True]),
        (["--node", "a", "q"], ["q", "a", False]),
        (["--node=a", "q"], ["q", "a", False]),
        (["--node=", "q"], ["q", "", False]),
        (["--", "--node"], ["--node", None, False]),
    ],
)
def test_the_value_of_the_option_node_may_be_left_out(arguments: list[str], told: list[object]) -> None:
    assert CliRunner().invoke(app, arguments).output == f"{told}\n"
