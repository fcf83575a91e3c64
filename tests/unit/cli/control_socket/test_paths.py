"""Where sockets are, for names and directories of any length, and who may have one."""

from __future__ import annotations

import shutil
import socket
import stat
from pathlib import Path

import pytest

from journal.cli.control_socket.paths import ADDRESS_BYTES_MAX, OwnSocket, connect, node_of, socket_path, sockets_of
from journal.config import Settings, load_settings
from journal.errors import NodeSocketError

SECONDS = 60.0


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(directory=tmp_path, journal="orders")


def connects(path: Path) -> None:
    connect(path, SECONDS).close()


def test_a_socket_lies_with_its_journal_for_its_user_only(settings: Settings) -> None:
    path = socket_path(settings, "broker-a")
    assert path == settings.directory / "orders" / "nodes" / "broker-a.sock"
    own = OwnSocket(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    connects(path)
    own.close()
    assert not path.exists()


@pytest.mark.parametrize("name", ["a/b", "..", "é", "n" * 200, "x y", "a" * 60])
def test_a_node_of_any_name_has_a_socket_of_its_own(settings: Settings, name: str) -> None:
    path, other = socket_path(settings, name), socket_path(settings, name + "2")
    assert path.parent == other.parent == settings.directory / "orders" / "nodes"
    assert path != other
    own, second = OwnSocket(path), OwnSocket(other)
    connects(path)
    assert sockets_of(settings) == sorted((path, other))
    if len(name) < 50:
        assert node_of(path) == name
    own.close()
    second.close()


def test_a_path_that_is_too_long_for_an_address_works_all_the_same(tmp_path: Path) -> None:
    settings = load_settings(directory=tmp_path / ("d" * 120), journal="orders")
    path = socket_path(settings, "n" * 200)
    assert len(str(path)) > ADDRESS_BYTES_MAX
    own = OwnSocket(path)
    connects(path)
    own.close()


def test_a_second_node_of_the_name_is_refused_and_a_killed_ones_socket_is_replaced(settings: Settings) -> None:
    path = socket_path(settings, "one")
    own = OwnSocket(path)
    with pytest.raises(NodeSocketError, match="a node named one runs on this machine already"):
        OwnSocket(path)
    connects(path)
    own.close()
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    with pytest.raises(NodeSocketError, match="node one does not run any more: it was killed"):
        connects(path)
    replaced = OwnSocket(path)
    connects(path)
    replaced.close()


def test_a_socket_that_is_not_there_or_not_ours_is_told_so(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    path = socket_path(settings, "one")
    assert sockets_of(settings) == []
    with pytest.raises(NodeSocketError, match="no node named one runs on this machine"):
        connects(path)
    own = OwnSocket(path)

    def refuse(self: socket.socket, address: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", refuse)  # tests may run as root, whom nothing is refused
    with pytest.raises(NodeSocketError, match="another user's"):
        connects(path)
    own.close()


def test_a_directory_that_cannot_be_used_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "orders").write_text("a file")
    settings = load_settings(directory=tmp_path, journal="orders")
    with pytest.raises(NodeSocketError, match="cannot use"):
        OwnSocket(socket_path(settings, "one"))
    with pytest.raises(NodeSocketError, match="orders/nodes"):
        sockets_of(settings)


def test_a_socket_that_was_deleted_is_made_anew_and_found(settings: Settings) -> None:
    path = socket_path(settings, "broker-a")
    own = OwnSocket(path)
    assert not own.is_lost
    path.unlink()
    assert own.is_lost
    own.renew()
    connects(path)
    shutil.rmtree(settings.directory)
    assert own.is_lost
    own.renew()
    assert not own.is_lost
    connects(path)
    with pytest.raises(NodeSocketError, match="runs on this machine already"):
        OwnSocket(path)
    own.close()
    assert not path.exists()


def test_a_socket_that_was_deleted_is_left_to_a_node_of_that_name_that_was_started_meanwhile(
    settings: Settings,
) -> None:
    path = socket_path(settings, "broker-a")
    lost = OwnSocket(path)
    shutil.rmtree(settings.directory)
    other = OwnSocket(path)
    with pytest.raises(NodeSocketError, match="runs on this machine already"):
        lost.renew()
    lost.close()
    connects(path)
    other.close()
