"""Signals that end what serves until it is told to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from journal.cli.stopping import stopped_by_signals

DEADLINE_S = 30.0

SIGNALLED = """
import os, signal
from journal.cli.stopping import stopped_by_signals
with stopped_by_signals() as stop:
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        os.kill(os.getpid(), number)
    stop.wait()
    print("stops", flush=True)
    input()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_sets_the_event_that_stops_a_service(number: int) -> None:
    with stopped_by_signals() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(DEADLINE_S)


def test_the_first_signal_is_answered_before_anything_has_ended(capsys: pytest.CaptureFixture[str]) -> None:
    with stopped_by_signals("ending after this batch") as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(DEADLINE_S)
    assert capsys.readouterr().err == "ending after this batch\n"


def test_a_signal_that_comes_on_the_way_into_wait_stops_nothing_for_ever() -> None:
    """`wait` holds the event's lock for a moment: a handler that wanted it would never return."""
    with stopped_by_signals() as stop:
        with stop._cond:  # type: ignore[attr-defined]
            os.kill(os.getpid(), signal.SIGTERM)
            assert not stop._flag  # type: ignore[attr-defined]
        assert stop.wait(DEADLINE_S)


def test_a_signal_whose_handler_cannot_run_yet_sets_the_event() -> None:
    """Handlers run in the main thread, and a signal that interrupts another one does not end what that waits for."""
    main = threading.get_ident()

    def take_signal() -> None:
        while sys._current_frames()[main].f_code is not threading.Condition.wait.__code__:
            continue  # the main thread does not wait yet
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    with stopped_by_signals() as stop:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        try:
            taking = threading.Thread(target=take_signal)
            taking.start()
            assert stop.wait(DEADLINE_S)
            taking.join()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


def test_signal_handlers_are_afterwards_what_they_were() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with stopped_by_signals():
        os.kill(os.getpid(), signal.SIGTERM)
    assert {number: signal.getsignal(number) for number in before} == before


@pytest.mark.parametrize("later_s", [0.0, 1.2])
def test_signals_of_one_request_end_it_in_order_and_one_behind_them_at_once(later_s: float) -> None:
    """The process signals itself: signals of another process may arrive too late on a busy machine."""
    with subprocess.Popen(
        [sys.executable, "-c", SIGNALLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as serving:
        assert serving.stdout is not None
        assert serving.stdout.readline() == "stops\n"
        if not later_s:
            serving.communicate("\n", DEADLINE_S)
            assert serving.returncode == 0
            return
        time.sleep(later_s)
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(DEADLINE_S) == -signal.SIGTERM


STARTED = """
import os, signal, sys
from journal.cli.start import main
awaited, sys.argv = sys.argv[1], ["kafka-journal", "settings"]
class Interrupts:
    def find_spec(self, name, path, target=None):
        if name == awaited:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
main()
"""


@pytest.mark.parametrize("module", ["typer", "journal.cli.common", "journal.cli.settings"])
def test_a_ctrl_c_while_modules_are_imported_ends_without_a_traceback(module: str) -> None:
    ended = subprocess.run([sys.executable, "-c", STARTED, module], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "interrupted\n")
