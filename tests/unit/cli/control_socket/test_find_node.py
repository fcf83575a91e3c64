"""`--node` asks the named node, or the only one that answers; otherwise an error names the choice."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from journal.cli.control_socket.client import find_node
from journal.cli.control_socket.lines import SocketLimits
from journal.cli.control_socket.paths import OwnSocket, socket_path
from journal.errors import ConfigError, NodeSocketError
from tests.support.sockets import NodeUnderTest

QUICK = SocketLimits(hello_s=0.2)


@pytest.fixture
def one(tmp_path: Path) -> Iterator[NodeUnderTest]:
    made = NodeUnderTest(tmp_path)
    yield made
    made.store_node.close()


def killed(node: NodeUnderTest, name: str) -> Path:
    path = socket_path(node.settings, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    return path


def test_the_only_node_that_answers_is_asked_whatever_others_left(one: NodeUnderTest) -> None:
    killed(one, "killed")
    with one.socket():
        for name in ("", "one"):
            with find_node(one.settings, name) as client:
                assert client.hello() == "one"


def test_a_node_that_hangs_is_named_and_never_taken_for_the_only_one(one: NodeUnderTest) -> None:
    hanging = OwnSocket(socket_path(one.settings, "hanging"))
    for name in ("", "hanging"):
        with pytest.raises(NodeSocketError, match=r"node hanging at .*: it takes connections and does not answer"):
            find_node(one.settings, name, QUICK)
    with one.socket(), find_node(one.settings, "", SocketLimits(hello_s=2.0)) as client:
        assert client.hello() == "one"
    hanging.close()


def test_several_nodes_are_named(one: NodeUnderTest, tmp_path: Path) -> None:
    two = NodeUnderTest(tmp_path / "two", name="two")
    two.settings = one.settings.model_copy(update={"node": "two"})
    with (
        one.socket(),
        two.socket(),
        pytest.raises(ConfigError, match="several nodes of journal orders run on this machine, one, two: --node=NAME"),
    ):
        find_node(one.settings, "")
    two.store_node.close()


def test_no_node_a_killed_one_and_one_of_another_name_are_told_apart(one: NodeUnderTest) -> None:
    with pytest.raises(NodeSocketError, match="no node of journal orders runs on this machine"):
        find_node(one.settings, "")
    killed(one, "killed")
    for name in ("", "killed"):
        with pytest.raises(NodeSocketError, match="node killed does not run any more"):
            find_node(one.settings, name)
    with pytest.raises(NodeSocketError, match=r"no node named other .* sockets that there are: killed"):
        find_node(one.settings, "other")
