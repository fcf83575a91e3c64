"""The network that faults are made in does what it says: plain sockets, no Kafka."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from journal.embedded.process import start_time, wait_until
from tests.chaos.faults import namespaces
from tests.chaos.faults.delay import DelayProxy
from tests.chaos.faults.network import Host, Network
from tests.chaos.faults.rules import Cut, Loss, render

pytestmark = pytest.mark.timeout(60)

PORT = 9000
DEADLINE_S = 30.0
BUFFER_BYTES = 8 << 20
SO_RCVBUFFORCE = 33


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    try:
        made = Network(["one", "two", "three"])
    except namespaces.NoNamespacesError as error:
        pytest.skip(str(error))
    with made:
        yield made


class Post:
    """A host's datagram socket: what arrives is in order, what is dropped never arrives."""

    def __init__(self, host: Host) -> None:
        self.host = host
        with host.entered():
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        self._socket.settimeout(DEADLINE_S)
        self._socket.bind((host.ip, PORT))

    def send(self, to: Post, text: str) -> None:
        self._socket.sendto(text.encode(), (to.host.ip, PORT))

    def receive(self) -> str:
        return self._socket.recv(100).decode()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def posts(network: Network) -> Iterator[list[Post]]:
    made = [Post(host) for host in network.hosts]
    yield made
    network.heal()
    for post in made:
        post.close()


def test_hosts_reach_each_other_and_not_the_machine(network: Network, posts: list[Post]) -> None:
    one, two, _ = posts
    one.send(two, "hello")
    assert two.receive() == "hello"
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with network.host("one").entered(), pytest.raises(ConnectionRefusedError):
            socket.create_connection(listening.getsockname(), timeout=DEADLINE_S)


def test_a_partition_drops_both_ways_until_it_is_healed(network: Network, posts: list[Post]) -> None:
    one, two, three = posts
    cut = network.partition(one.host, [two.host, three.host])
    one.send(two, "lost")
    two.send(one, "lost")
    three.send(two, "not cut")
    assert two.receive() == "not cut"
    network.heal(cut)
    one.send(two, "healed")
    two.send(one, "healed")
    assert (one.receive(), two.receive()) == ("healed", "healed")


def test_a_one_way_partition_lets_the_other_way_through(network: Network, posts: list[Post]) -> None:
    one, two, _ = posts
    network.partition(one.host, two.host, both=False)
    one.send(two, "lost")
    two.send(one, "through")
    assert one.receive() == "through"
    network.heal()
    one.send(two, "healed")
    assert two.receive() == "healed"


def test_healing_one_partition_leaves_an_equal_one(network: Network, posts: list[Post]) -> None:
    one, two, three = posts
    first = network.partition(one.host, two.host)
    second = network.partition(one.host, two.host)
    network.heal(first)
    one.send(two, "lost")
    three.send(two, "not cut")
    assert two.receive() == "not cut"
    network.heal(second)
    one.send(two, "healed")
    assert two.receive() == "healed"


def test_a_lossy_link_loses_about_the_given_percentage_of_packets(network: Network, posts: list[Post]) -> None:
    one, two, _ = posts
    lossy = network.lose(one.host, 30)
    for number in range(2000):
        one.send(two, str(number))
    network.heal(lossy)
    one.send(two, "end")
    arrived = 0
    while two.receive() != "end":
        arrived += 1
    assert 1200 < arrived < 1600


def send_and_close(sending: socket.socket, size: int) -> None:
    with closing(sending):
        sending.sendall(b"x" * size)


def transfer_s(network: Network, size: int) -> float:
    """How long so many bytes take from one host to another."""
    with network.host("two").entered():
        listening = socket.create_server((network.host("two").ip, 0))
    with closing(listening):
        with network.host("one").entered():
            sending = socket.create_connection(listening.getsockname(), timeout=DEADLINE_S)
        receiving, _ = listening.accept()
        receiving.settimeout(DEADLINE_S)
        began = time.monotonic()
        thread = threading.Thread(target=send_and_close, args=(sending, size))
        thread.start()
        with closing(receiving):
            while receiving.recv(1 << 16):
                pass
        thread.join()
    return time.monotonic() - began


def test_a_slow_link_carries_no_more_than_its_rate(network: Network) -> None:
    network.slow(network.host("one"), "2mbit")
    assert transfer_s(network, 250_000) > 0.7  # a second, less what the bucket holds
    network.quicken(network.host("one"))
    transfer_s(network, 20_000_000)  # more than a minute on the slow link


def echo(listening: socket.socket) -> None:
    """Sends back what it gets on one connection, until that is reset or ends."""
    accepted, _ = listening.accept()
    with closing(accepted), suppress(ConnectionError):
        while received := accepted.recv(1 << 16):
            accepted.sendall(received)


def round_trip_s(connection: socket.socket) -> float:
    began = time.monotonic()
    connection.sendall(b"there and back")
    assert connection.recv(100) == b"there and back"
    return time.monotonic() - began


def test_a_proxy_delays_each_way_and_resets_what_was_open_before(network: Network) -> None:
    one, two = network.host("one"), network.host("two")
    with two.entered():
        listening = socket.create_server((two.ip, 0))
    proxy = DelayProxy(one, [two], 100)
    with closing(listening), one.entered():
        threading.Thread(target=echo, args=(listening,), daemon=True).start()
        with closing(socket.create_connection(listening.getsockname(), timeout=DEADLINE_S)) as before:
            round_trip_s(before)
            proxy.start()
            with pytest.raises(ConnectionResetError):
                round_trip_s(before)
    # the other side of a reset connection hears nothing of it, as in a network that was cut
    with two.entered():
        listening = socket.create_server((two.ip, 0))
    with closing(listening), one.entered():
        threading.Thread(target=echo, args=(listening,), daemon=True).start()
        with closing(socket.create_connection(listening.getsockname(), timeout=DEADLINE_S)) as delayed:
            assert round_trip_s(delayed) >= 0.2
            proxy.stop()
            with pytest.raises(ConnectionResetError):
                round_trip_s(delayed)


KILLED = """
import subprocess, sys
from tests.chaos.faults.network import Network
network = Network(["left"])
left = subprocess.Popen([*network.host("left").prefix, "sleep", "600"], stdout=subprocess.DEVNULL)
print(network.host("left").namespace, left.pid, flush=True)
sys.stdin.read()
"""


def test_what_a_killed_run_left_is_removed_by_the_next(network: Network) -> None:
    run = subprocess.Popen([sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    namespace, pid = run.stdout.readline().split()
    namespaces.remove_stale()
    assert namespace in namespaces.existing()
    run.send_signal(signal.SIGKILL)
    run.communicate()
    namespaces.remove_stale()
    assert namespace not in namespaces.existing()
    assert wait_until(lambda: start_time(int(pid)) is None, DEADLINE_S)
    assert network.host("one").namespace in namespaces.existing()


def test_rules_are_replaced_as_a_whole() -> None:
    text = render([Cut(("10.200.0.1",), ("10.200.0.2", "10.200.0.3")), Loss("10.200.0.1", 12.5)])
    assert text.startswith("table bridge faults\ndelete table bridge faults\n")
    assert "ip saddr { 10.200.0.1 } ip daddr { 10.200.0.2, 10.200.0.3 } drop" in text
    assert "ip daddr 10.200.0.1 numgen random mod 1000 < 125 drop" in text
