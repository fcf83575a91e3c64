"""Settings of a command: flag, then environment, then file, then default; exit codes of what goes wrong."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import typer

from journal.cli.common import ended_by_sigterm_as_by_ctrl_c, exit_codes, settings_from
from journal.errors import (
    ActiveNodeError,
    ConfigError,
    CorruptionError,
    FencedError,
    InvalidOperationError,
    JournalError,
    KafkaUnavailableError,
    OutcomeUnknownError,
    TopicError,
)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BOOTSTRAP_SERVERS", "JOURNAL", "CLIENT_PROPERTIES", "SHARDS"):
        monkeypatch.delenv(f"KAFKA_JOURNAL_{name}", raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "settings.toml"
    path.write_text('journal = "of-file"\nbootstrap_servers = "file:1"\nshards = 3\n[limits]\ndata_bytes_max = 1000\n')
    return path


def test_a_flag_comes_before_the_environment_and_that_before_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings_from(None, None, None, None).journal == "journal"
    assert settings_from(None, None, None, file).journal == "of-file"
    monkeypatch.setenv("KAFKA_JOURNAL_JOURNAL", "of-environment")
    assert settings_from(None, None, None, file).journal == "of-environment"
    settings = settings_from(None, "of-flag", None, file)
    assert (settings.journal, settings.bootstrap_servers, settings.shards) == ("of-flag", "file:1", 3)
    assert settings.limits.data_bytes_max == 1000
    assert settings_from("flag:1", None, None, file, shards=5).shards == 5


def test_only_what_was_given_somewhere_counts_as_given(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "bootstrap_servers" not in settings_from(None, None, None, None).model_fields_set
    assert "bootstrap_servers" in settings_from(None, None, None, file).model_fields_set
    monkeypatch.setenv("KAFKA_JOURNAL_BOOTSTRAP_SERVERS", "environment:1")
    assert "bootstrap_servers" in settings_from(None, None, None, None).model_fields_set


def test_client_properties_are_key_and_value() -> None:
    settings = settings_from(None, None, ["client.id=a=b", "debug="], None)
    assert settings.client_properties == {"client.id": "a=b", "debug": ""}


@pytest.mark.parametrize("item", ["client.id", "=x", ""])
def test_a_client_property_without_key_or_value_is_refused(item: str) -> None:
    with pytest.raises(ConfigError, match="expected KEY=VALUE"):
        settings_from(None, None, [item], None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("journal = ", r"settings\.toml: "),
        ('journal = "UPPER"', r"settings\.toml: journal: must be 1 to 100"),
        ("no_such_setting = 1", r"settings\.toml: no_such_setting: there is no such setting$"),
        ("jurnal = 1", r"settings\.toml: jurnal: there is no such setting; did you mean journal\?$"),
        ("[limits]\ndata_byte_max = 1", r"settings\.toml: limits\.data_byte_max: .*did you mean data_bytes_max\?$"),
        ('[[routing.routes]]\nadress = "a"', r"routing\.routes\.0\.adress: .*did you mean address\?"),
        ('topic_prefix = "x"', r"settings\.toml: topic_prefix: must be up to 50"),
        ("node_heartbeat_ms = 5000", "^node_heartbeat_ms must be below half"),
    ],
)
def test_a_file_that_will_not_do_is_refused_with_what_is_wrong(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match=says):
        settings_from(None, None, None, file)


def test_a_flag_that_will_not_do_is_not_blamed_on_the_file(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"^journal: must be 1 to 100"):
        settings_from(None, "UPPER", None, file)


def test_a_directory_is_not_called_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory, not a file"):
        settings_from(None, None, None, tmp_path)


def test_a_file_that_is_not_text_is_refused(file: Path) -> None:
    file.write_bytes(b"journal = '\xff'")
    with pytest.raises(ConfigError, match=r"settings\.toml: .*utf-8"):
        settings_from(None, None, None, file)


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("CLIENT_PROPERTIES", "foo", "client_properties"),
        ("LIMITS", "{", "limits"),
        ("FENCE_CHEK_MS", "1", "KAFKA_JOURNAL_FENCE_CHEK_MS .*did you mean KAFKA_JOURNAL_FENCE_CHECK_MS"),
        ("NODE__HEARTBEAT_MS", "1", "no such setting; did you mean KAFKA_JOURNAL_NODE_HEARTBEAT_MS"),
        ("LIMITS__DATA_BYTE_MAX", "1", "LIMITS__DATA_BYTE_MAX in the environment: .*did you mean data_bytes_max"),
        ("XYZZY", "", "KAFKA_JOURNAL_XYZZY in the environment: there is no such setting$"),
    ],
)
def test_a_variable_that_will_not_do_is_refused_with_what_is_wrong(
    variable: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"KAFKA_JOURNAL_{variable}", value)
    with pytest.raises(ConfigError, match=says):
        settings_from(None, None, None, None)


OTHERS = ("CACHE", "KAFKA_DIR", "ROLE", "EPOCH", "REASON", "TEST_LONG")
SERVICES = ("SERVICE_HOST", "PORT", "PORT_9092_TCP_ADDR", "WORKER_SERVICE_PORT_METRICS", "WORKER_PORT_80_TCP")


@pytest.mark.parametrize("variable", OTHERS + SERVICES)
def test_variables_that_others_read_are_left_to_them(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"KAFKA_JOURNAL_{variable}", "x")
    assert settings_from(None, None, None, None).journal == "journal"


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (ConfigError("a setting"), 2, "error: a setting"),
        (InvalidOperationError("an id"), 2, "error: an id"),
        (TopicError("run init"), 1, "error: run init"),
        (ActiveNodeError("--take-over"), 1, "error: --take-over"),
        (CorruptionError("garbage", topic="j.wal", partition=1, offset=2), 1, "j.wal[1]@2: garbage"),
        (FencedError("epoch 7"), 1, "another node took the journal over"),
        (OutcomeUnknownError("group 7"), 1, "as a whole or not at all: kafka-journal dump"),
        (KafkaUnavailableError("time-out"), 1, "-b, KAFKA_JOURNAL_BOOTSTRAP_SERVERS"),
        (JournalError("anything"), 1, "error: anything"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_errors_become_a_line_and_an_exit_code(
    error: BaseException, code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended, exit_codes():
        raise error
    assert ended.value.exit_code == code
    output = capsys.readouterr()
    assert says in output.err
    assert output.out == ""


def test_a_sigterm_ends_a_command_as_ctrl_c_does_with_all_that_it_has_to_tidy_up() -> None:
    before, tidied = signal.getsignal(signal.SIGTERM), []

    def command() -> None:
        with exit_codes(), ended_by_sigterm_as_by_ctrl_c():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(10)
            finally:
                tidied.append("all")

    with pytest.raises(typer.Exit) as ended:
        command()
    assert ended.value.exit_code == 130
    assert tidied == ["all"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_runs_in_another_thread_leaves_signals_alone() -> None:
    def run() -> str:
        with ended_by_sigterm_as_by_ctrl_c():
            return threading.current_thread().name

    before = signal.getsignal(signal.SIGTERM)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(run).result(10) != threading.main_thread().name
    assert signal.getsignal(signal.SIGTERM) is before
