"""The reader of a worker, a process of its own: what it calls and says, and how it stops."""

from __future__ import annotations

import ast

import pytest

from journal.embedded.process import wait_until
from journal.errors import KafkaRefusedError
from streams.reading import reader as module
from tests.unit.streams.reader_scene import LIMIT_S, NAME, SHARDS, ReaderParent

pytestmark = pytest.mark.timeout(60)


# ---- the parent: what its reader calls and says ------------------------------------------------------------------


def test_a_reader_is_told_what_it_needs_to_know_and_nothing_else(worker: ReaderParent) -> None:
    worker.run("note(hear()); call('stop'); say('ended', '', '')").result(LIMIT_S)
    (line,) = worker.notes()
    chosen, name, shards = ast.literal_eval(line)
    assert (name, shards) == (NAME, SHARDS)
    assert chosen == {
        "bootstrap_servers": "127.0.0.1:1",
        "journal": "orders",
        "node": "one",
        "session_timeout_ms": 2000,
        "client_properties": {"sasl.mechanism": "PLAIN", "sasl.password": "secret"},
    }


def test_what_a_reader_calls_is_done_until_it_ends(worker: ReaderParent) -> None:
    worker.run("hear(); call('assigned', [0, 2]); call('tick'); call('stop'); say('ended', '', '')").result(LIMIT_S)
    assert worker.shell.calls == [("assigned", [0, 2]), ("tick",), ("stop",)]
    assert len(worker.pids()) == 1


def test_an_error_that_a_reader_says_is_raised_and_the_shell_is_left_as_it_is(worker: ReaderParent) -> None:
    running = worker.run("hear(); call('assigned', [0]); say('ended', 'KafkaRefusedError', 'not authorised')")
    with pytest.raises(KafkaRefusedError, match="not authorised"):
        running.result(LIMIT_S)
    assert worker.shell.calls == [("assigned", [0])]


def test_an_error_of_the_shell_is_raised_and_a_reader_that_waits_for_its_answer_ends_with_the_worker(
    worker: ReaderParent,
) -> None:
    worker.shell.fails = LookupError("of the shell")
    running = worker.run("hear(); call('assigned', [0])")
    with pytest.raises(LookupError, match="of the shell"):
        running.result(LIMIT_S)
    assert worker.shell.calls == [("assigned", [0])]
    assert worker.notes() == ["nobody answers"]


def test_a_reader_hears_that_its_parent_lives_and_when_that_has_no_more_for_it_to_do(
    worker: ReaderParent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SIGN_EVERY_S", 0.001)
    does = "hear(); note([os.read(0, 1) for _ in range(3)]); call('stop'); say('ended', '', ''); until_end_of_input()"
    worker.run(f"{does}; note('closed')").result(LIMIT_S)
    assert worker.notes() == [str([b"."] * 3), "closed"]


def test_a_reader_that_hears_nothing_holds_up_nobody(worker: ReaderParent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SIGN_EVERY_S", 0.0)
    running = worker.run("""
hear()
until_input_is_full()
call("assigned", [0])
until_terminated()
call("stop")
say("ended", "", "")
""")
    worker.until_called("assigned", [0])
    worker.stop()
    running.result(LIMIT_S)
    assert worker.shell.calls == [("assigned", [0]), ("stop",)]
    assert len(worker.pids()) == 1


# ---- the parent: stops -------------------------------------------------------------------------------------------

STOPS_IN_ORDER = """
hear()
call("assigned", [0, 2])
until_terminated()
call("revoked", [0, 2])
call("stop")
say("ended", "", "")
note("left")
"""


def test_a_stop_is_the_readers_to_make_which_leaves_in_order(worker: ReaderParent) -> None:
    running = worker.run(STOPS_IN_ORDER)
    worker.until_called("assigned", [0, 2])
    assert not running.done()
    worker.stop()
    running.result(LIMIT_S)
    worker.close()
    assert worker.shell.calls == [("assigned", [0, 2]), ("revoked", [0, 2]), ("stop",)]
    assert worker.notes() == ["left"]
    assert len(worker.pids()) == 1


def test_an_error_that_a_reader_says_while_it_stops_is_raised(worker: ReaderParent) -> None:
    running = worker.run("hear(); call('assigned', [0]); until_terminated(); say('ended', 'ValueError', 'odd')")
    worker.until_called("assigned", [0])
    worker.stop()
    with pytest.raises(RuntimeError, match="ValueError: odd"):
        running.result(LIMIT_S)


@pytest.mark.parametrize(
    "does",
    [
        pytest.param("die()", id="before it has called for it"),
        pytest.param("call('stop'); die()", id="when it has called for it"),
        pytest.param("say('stop'); die()", id="before it had the answer"),
    ],
)
def test_a_reader_that_dies_as_it_stops_is_not_replaced_and_the_shell_stops_once(
    worker: ReaderParent, does: str
) -> None:
    running = worker.run(f"hear(); call('assigned', [0]); until_terminated(); {does}")
    worker.until_called("assigned", [0])
    worker.stop()
    running.result(LIMIT_S)
    assert worker.shell.calls == [("assigned", [0]), ("stop",)]
    assert len(worker.pids()) == 1


def test_a_reader_that_is_not_ready_to_be_told_to_stop_dies_of_it_and_the_shell_stops_once(
    worker: ReaderParent,
) -> None:
    does = "signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM}); note('starts'); time.sleep(60)"
    running = worker.run(does)
    worker.until_noted("starts")
    worker.stop()
    running.result(LIMIT_S)
    assert worker.shell.calls == [("stop",)]
    assert len(worker.pids()) == 1


def test_shards_are_given_back_at_once_and_a_stop_while_there_is_no_reader_starts_none(
    worker: ReaderParent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 2 * LIMIT_S)
    running = worker.run("hear(); call('assigned', [0]); die()")
    assert wait_until(lambda: "another one is started" in caplog.text, LIMIT_S)
    assert worker.shell.calls == [("assigned", [0]), ("revoked", [0])]
    worker.stop()
    running.result(LIMIT_S)
    assert worker.shell.calls == [("assigned", [0]), ("revoked", [0]), ("stop",)]
    assert len(worker.pids()) == 1


def test_a_stop_while_a_reader_that_is_no_longer_answered_ends_starts_none(worker: ReaderParent) -> None:
    does = "parent.shutdown(socket.SHUT_RDWR); until_end_of_input(); note('ends'); until_terminated()"
    running = worker.run(f"hear(); call('assigned', [0]); {does}")
    worker.until_noted("ends")
    worker.stop()
    running.result(LIMIT_S)
    assert worker.shell.calls == [("assigned", [0]), ("stop",)]
    assert len(worker.pids()) == 1


def test_an_error_of_the_shell_as_it_stops_without_a_reader_is_raised(worker: ReaderParent) -> None:
    running = worker.run("hear(); call('assigned', [0]); until_terminated(); die()")
    worker.until_called("assigned", [0])
    worker.shell.fails = LookupError("of the shell")
    worker.stop()
    with pytest.raises(LookupError, match="of the shell"):
        running.result(LIMIT_S)
    assert worker.shell.calls == [("assigned", [0]), ("stop",)]
