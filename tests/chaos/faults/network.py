"""A network of the suite's own: each host is a network namespace, tied by a veth pair to a bridge in one more.

    with Network(["broker-1", "node-1"]) as network:
        subprocess.Popen([*network.host("node-1").prefix, "kafka-journal", "node"])
        cut = network.partition([network.host("node-1")], [network.host("broker-1")])
        network.heal(cut)

Packets are dropped on the bridge, as a switch would lose them: no sender is told. A slow link is a token bucket at
both ends of the host's cable. Addresses are 10.200.0.0/16, and exist in these namespaces only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Self

from tests.chaos.faults import namespaces
from tests.chaos.faults.rules import Cut, Loss, render

HUB = "hub"
BRIDGE = "bridge"
CABLE = "eth0"
HOSTS_MAX = 200
BURST_BYTES = 16 * 1024
QUEUE_MS = 500


@dataclass(frozen=True)
class Host:
    """One place in the network: its name, its address, and what to put before a command that is to run there."""

    name: str
    ip: str
    namespace: str

    @property
    def prefix(self) -> tuple[str, ...]:
        return namespaces.command_prefix(self.namespace)

    def entered(self) -> AbstractContextManager[None]:
        """Inside, this thread and all that it starts is on this host."""
        return namespaces.entered(self.namespace)


class Network:
    """Raises NoNamespacesError when it is made, if this machine cannot have one."""

    def __init__(self, hosts: Sequence[str]) -> None:
        assert len(set(hosts)) == len(hosts) <= HOSTS_MAX
        assert HUB not in hosts
        namespaces.require_means()
        namespaces.remove_stale()
        prefix = namespaces.new_prefix()
        self._hub = prefix + HUB
        self._hosts = {
            name: Host(name, f"10.200.{number // 250}.{number % 250 + 1}", prefix + name)
            for number, name in enumerate(hosts)
        }
        self._rules: list[Cut | Loss] = []
        try:
            self._build()
        except (namespaces.CommandError, namespaces.NoNamespacesError) as error:
            self.close()
            raise namespaces.NoNamespacesError(str(error)) from error

    def host(self, name: str) -> Host:
        return self._hosts[name]

    @property
    def hosts(self) -> list[Host]:
        return list(self._hosts.values())

    def partition(self, one: Iterable[Host] | Host, other: Iterable[Host] | Host, *, both: bool = True) -> list[Cut]:
        """Nothing gets from `one` to `other`, nor, with `both`, the other way; give the result to `heal`."""
        these, those = _addresses(one), _addresses(other)
        cuts = [Cut(these, those), Cut(those, these)] if both else [Cut(these, those)]
        self._apply([*self._rules, *cuts])
        return cuts

    def lose(self, host: Host, percent: float) -> list[Loss]:
        """So many percent of its packets are lost, each way; give the result to `heal`."""
        loss = Loss(host.ip, percent)
        self._apply([*self._rules, loss])
        return [loss]

    def slow(self, host: Host, rate: str) -> None:
        """Its cable carries so much, each way, in the words of `tc`: "1mbit". A later call replaces it."""
        bucket = ("root", "tbf", "rate", rate, "burst", str(BURST_BYTES), "latency", f"{QUEUE_MS}ms")
        for namespace, cable in self._ends(host):
            namespaces.run("tc", "-n", namespace, "qdisc", "replace", "dev", cable, *bucket)

    def quicken(self, host: Host) -> None:
        """Ends `slow`."""
        for namespace, cable in self._ends(host):
            if "tbf" in namespaces.run("tc", "-n", namespace, "qdisc", "show", "dev", cable):
                namespaces.run("tc", "-n", namespace, "qdisc", "del", "dev", cable, "root")

    def heal(self, rules: Iterable[Cut | Loss] | None = None) -> None:
        """Ends these cuts and losses; without an argument, all of them, and every slow link."""
        ended = self._rules if rules is None else list(rules)
        self._apply([rule for rule in self._rules if rule not in ended])
        if rules is None:
            for host in self.hosts:
                self.quicken(host)

    def close(self) -> None:
        """Everything is gone, also what still runs on the hosts."""
        namespaces.remove([*(host.namespace for host in self.hosts), self._hub])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _build(self) -> None:
        namespaces.make([self._hub, *(host.namespace for host in self.hosts)])
        lines = [f"link add {BRIDGE} type bridge forward_delay 0", f"link set {BRIDGE} up"]
        for number, host in enumerate(self.hosts):
            port = _port(number)
            lines += [
                f"link add {port} type veth peer name {CABLE} netns {host.namespace}",
                f"link set {port} master {BRIDGE} up",
            ]
        namespaces.run("ip", "-n", self._hub, "-batch", "-", given="\n".join(lines) + "\n")
        for host in self.hosts:
            inside = f"addr add {host.ip}/16 dev {CABLE}\nlink set {CABLE} up\n"
            namespaces.run("ip", "-n", host.namespace, "-batch", "-", given=inside)
        self._apply([])

    def _apply(self, rules: list[Cut | Loss]) -> None:
        namespaces.run(*namespaces.command_prefix(self._hub), "nft", "-f", "-", given=render(rules))
        self._rules = rules

    def _ends(self, host: Host) -> list[tuple[str, str]]:
        number = self.hosts.index(host)
        return [(host.namespace, CABLE), (self._hub, _port(number))]


def _port(number: int) -> str:
    return f"port{number}"


def _addresses(hosts: Iterable[Host] | Host) -> tuple[str, ...]:
    return (hosts.ip,) if isinstance(hosts, Host) else tuple(host.ip for host in hosts)
