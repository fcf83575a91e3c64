"""Errors of authorisation: what a client may not do with which resource, and the command that allows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

TOPIC, GROUP, TRANSACTIONAL_ID, CLUSTER = "topic", "group", "transactional-id", "cluster"

_DENIED: Mapping[int, str] = {29: TOPIC, 30: GROUP, 31: CLUSTER, 53: TRANSACTIONAL_ID}
"""Kinds of resources, by the protocol's error code for a client that may not use one."""


class Need(NamedTuple):
    """One permission that a request needs: a resource, and operations on it by their names in Kafka."""

    kind: str
    name: str
    operations: tuple[str, ...]


def on_topic(name: str, *operations: str) -> Need:
    return Need(TOPIC, name, operations)


def on_group(name: str, *operations: str) -> Need:
    return Need(GROUP, name, operations)


def on_transactional_id(name: str, *operations: str) -> Need:
    return Need(TRANSACTIONAL_ID, name, operations)


def on_cluster(*operations: str) -> Need:
    return Need(CLUSTER, "", operations)


class Access(NamedTuple):
    """A client's user, for the brokers' access rules."""

    bootstrap_servers: str
    principal: str

    def asks(self, *needs: Need) -> Request:
        return Request(self, needs)

    def lacks(self, need: Need) -> str:
        """Says which permission is missing, with the command that grants it."""
        what = f"{self.principal} may not {' or '.join(need.operations)} {need.kind} {need.name}".rstrip()
        return f"{what}: {self.command(need)}"

    def command(self, need: Need) -> str:
        """The command that grants a permission."""
        what = " ".join(f"--operation {operation}" for operation in need.operations)
        where = f"--{need.kind} {need.name}".rstrip()
        return (
            f"kafka-acls --bootstrap-server {self.bootstrap_servers} --add --allow-principal {self.principal} "
            f"{what} {where}"
        )


class Request(NamedTuple):
    """A client's request, and all permissions that it needs."""

    access: Access
    needs: tuple[Need, ...]

    def lacking(self, code: int) -> str:
        """A text that names the missing permissions and the commands that grant them. `code` is the request's error
        code; the text is empty if the error is not one of authorisation."""
        kind = _DENIED.get(code)
        return "; ".join(self.access.lacks(need) for need in self.needs if need.kind == kind)


def access_of(bootstrap_servers: str, properties: Mapping[str, str]) -> Access:
    """The access of a client with these properties. The properties name its user, or show that it has none. If a
    certificate or a ticket names the user, only the brokers know it, and it is called NAME here."""
    user = properties.get("sasl.username", "")
    protocol = properties.get("security.protocol", "plaintext").lower()
    return Access(bootstrap_servers, f"User:{user or ('ANONYMOUS' if protocol == 'plaintext' else 'NAME')}")
