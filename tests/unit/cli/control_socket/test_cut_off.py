"""A command that is cut off says how far it has come."""

from __future__ import annotations

import json
import os
import signal
import threading

import pytest
from typer.testing import CliRunner

from journal.append.completion import Completion
from journal.cli.apply import Applied
from journal.cli.common import said_if_cut_off
from journal.cli.main import app
from journal.errors import ConfigError, FencedError, JournalError
from tests.support.sockets import NodeUnderTest
from tests.support.waiting import wait_until


@pytest.mark.parametrize("as_json", [False, True])
def test_a_send_that_ctrl_c_cuts_off_says_how_many_messages_are_stored_unknown_and_not_sent(
    as_json: bool, node: NodeUnderTest
) -> None:
    directory = str(node.settings.directory)
    command = ["send", "orders", "x", "--queue", "q", "--count", "3000", "-j", "orders", "--node", "one"]

    def interrupt() -> None:
        wait_until(lambda: node.store_node.store.queue("q").arriving)
        os.kill(os.getpid(), signal.SIGINT)

    with node.socket(), node.store_node.blocked_writer():
        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        ended = CliRunner().invoke(
            app, [*command, *(["--json"] if as_json else [])], env={"KAFKA_JOURNAL_DIRECTORY": directory}
        )
        interrupting.join()
    assert ended.exit_code == 130
    assert "cut off: stored: 0 messages; stored or not: 1,000; not sent: 2,000" in ended.stderr
    if as_json:
        found = json.loads(ended.stdout)
        assert (found["messages"], found["unknown"], found["not_sent"]) == ([], 1000, 2000)


def test_a_script_is_in_the_journal_up_to_the_last_group_that_is_committed() -> None:
    applied, first, second = Applied(), Completion(), Completion()
    done = Completion()
    done.resolve()
    assert applied.committed() == (0, 0)
    applied.appended(1, first, waits=False)
    applied.appended(3, first, waits=False)
    applied.appended(4, done, waits=True)
    applied.appended(5, second, waits=False)
    assert applied.committed() == (0, 0)
    first.resolve()
    assert applied.committed() == (2, 3)
    second.resolve(JournalError("failed"))
    assert applied.committed() == (2, 3)
    assert (applied.operations, applied.line) == (4, 5)


@pytest.mark.parametrize(
    ("error", "begun", "said"),
    [
        (KeyboardInterrupt(), False, True),
        (FencedError("no"), True, True),
        (FencedError("no"), False, False),
        (ConfigError("no"), True, False),
    ],
)
def test_it_is_said_of_what_cuts_a_command_off_and_not_of_a_wrong_call(
    error: BaseException, begun: bool, said: bool
) -> None:
    told: list[str] = []
    with pytest.raises(type(error)), said_if_cut_off(lambda: told.append(""), lambda: begun):
        raise error
    assert bool(told) == said
