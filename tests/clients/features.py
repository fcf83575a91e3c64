"""The features that clients' programs check, in the order of the table, and what the broker says to those it lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

JMS = ("jms", "jms-javax")
JAVA = (*JMS, "protonj2")
TRANSACTIONAL = (*JAVA, "proton-python")
NOT_JMS = ("protonj2", "proton-python", "rhea", "go-amqp")
ALL = (*JMS, *NOT_JMS)

FEATURES: Mapping[str, Sequence[str]] = {
    "text message": ALL,
    "bytes message": ALL,
    "map message": ALL,
    "list message": ALL,
    "object message": JMS,
    "message without a body": JMS,
    "properties": ALL,
    "headers": ALL,
    "priority": ALL,
    "time to live": ALL,
    "non-persistent": JMS,
    "10 MiB": ALL,
    "asynchronous send": JMS,
    "settled on sending": NOT_JMS,
    "anonymous producer": ALL,
    "delivery delay": ALL,
    "listener": JMS,
    "receive without waiting": ALL,
    "prefetch 0": JMS,
    "prefetch 1000": ALL,
    "settled on receiving": NOT_JMS,
    "auto acknowledge": JMS,
    "client acknowledge": JMS,
    "dups-ok acknowledge": JMS,
    "individual acknowledge": ALL,
    "recover": JMS,
    "release": ALL,
    "modify": ALL,
    "reject": ALL,
    "commit": TRANSACTIONAL,
    "rollback": TRANSACTIONAL,
    "transaction over two queues": JAVA,
    "topic": ALL,
    "durable subscription": ALL,
    "unsubscribe": JAVA,
    "shared subscription": JMS,
    "shared durable subscription": JMS,
    "selector": ALL,
    "browser": ALL,
    "no-local": JMS,
    "message groups": JMS,
    "temporary queue": ALL,
    "temporary topic": JMS,
    "request and reply": ALL,
    "client id of one connection": JMS,
}
"""The clients whose programs check a feature. The others have no such operation, or one that is the same as another."""

ABSENT: Mapping[str, Sequence[str]] = {
    "temporary topic": ("expected news, found null",),
    "message groups": ("it does not hold that one consumer gets all messages of a group",),
}
"""What clients are told of features that the broker does not have: one of these texts."""


def checked_by(client: str) -> list[str]:
    """The features that a client's program checks."""
    return [feature for feature, clients in FEATURES.items() if client in clients]
