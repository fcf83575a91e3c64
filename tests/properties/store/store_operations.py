"""What hypothesis draws for operations on a message store: names of a machine's rules, and their arguments."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from journal.store.model import QueueConfig

GRACE_MS = 1000
INLINE = 64
OWN = "own"
"""Stands for the holder that has the message."""

QUEUES = {"q": ("a", True), "r": ("a", True), "t": ("a", False), "m": ("b", True)}
"""Address, and whether durable."""
JOURNALED = ("q", "t")
"""Queues whose acquisitions are in the journal."""
DISPOSING = {"q": "m", "t": "m"}
"""Queues with an expiry and a dead-letter address: where its messages go."""

LIMITS = {"r": 2}
"""Queues with a limit of deliveries."""

_picks = st.integers(0, 10**6)
_queue_names = st.sampled_from(["q", "r", "t", "m"])
_holders = st.sampled_from(["h", "i"])
_owners = st.sampled_from(["", "h", "i", OWN, OWN, OWN])
_inside = st.booleans()
_reference: dict[str, st.SearchStrategy[Any]] = {
    "pick": _picks,
    "queue": _queue_names,
    "transacted": _inside,
    "tx_pick": _picks,
}
_many: dict[str, st.SearchStrategy[Any]] = {
    "picks": st.lists(_picks, min_size=1, max_size=5),
    "queue": _queue_names,
    "transacted": st.sampled_from([False, False, True]),
    "tx_pick": _picks,
    "holder": _owners,
}
_declared: dict[str, st.SearchStrategy[Any]] = {"queue": _queue_names, "transacted": _inside, "pick": _picks}

_message: dict[str, st.SearchStrategy[Any]] = {
    "size": st.sampled_from([0, 10, INLINE, INLINE + 1, 200]),
    "priority": st.sampled_from([3, 4, 4, 5]),
    "durable": st.sampled_from([True, True, False]),
    "due": st.sampled_from([0, 0, 0, 500, 5000]),
    "expires": st.sampled_from([0, 0, 0, 300, 3000]),
    "duplicate": st.sampled_from([b"", b"", b"", b"", b"u", b"v", b"x", b"y", b"z"]),
}
_plain = {**_message, "size": st.sampled_from([0, 10, INLINE]), "durable": st.just(True), "duplicate": st.just(b"")}
_to = st.sampled_from(["q", "q", "qr", "r", "qt", "t", "qrt", "", "m", "mq"])

ARGUMENTS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "send": {"to": _to, **_message, "transacted": _inside, "pick": _picks},
    "send_all": {
        "to": _to,
        "kinds": st.one_of(
            *(st.lists(st.fixed_dictionaries(each), min_size=1, max_size=5) for each in (_plain, _plain, _message))
        ),
        "transacted": st.sampled_from([False, False, True]),
        "pick": _picks,
    },
    "route": {"pick": _picks, "queue": _queue_names, "due": st.sampled_from([0, 0, 700]), "transacted": _inside},
    "take": {"queue": _queue_names, "holder": _holders},
    "take_by_cursor": {"queue": _queue_names, "holder": _holders},
    "acquire": {**_reference, "holder": _holders},
    "release": {**_reference, "holder": _owners, "counts": st.booleans()},
    "acknowledge": {**_reference, "holder": _owners},
    "acknowledge_all": _many,
    "release_all": {**_many, "counts": st.booleans()},
    "hand_on": {
        "pick": _picks,
        "queue": _queue_names,
        "to": st.sampled_from(["", "h", "i"]),
        "moves": st.booleans(),
        "tx_pick": _picks,
    },
    "deliveries": {**_reference, "count": st.integers(0, 9)},
    "schedule": {**_reference, "due": st.sampled_from([0, 300, 3000])},
    "move": _reference,
    "dispose": {**_reference, "expires": st.booleans()},
    "reject": _many,
    "release_holder": {"holder": _holders, "counts": st.booleans()},
    "reattach": {"holder": _holders},
    "prepare": {"pick": _picks},
    "commit": {"pick": _picks},
    "rollback": {"pick": _picks, "releases": st.booleans()},
    "destroy_or_create_queue": _declared,
    "change_queue": {"queue": _queue_names, "filter": st.sampled_from(["", "a = 1"])},
    "pause_or_resume": {"queue": _queue_names, "paused": st.sampled_from([True, False, False])},
    "purge": {"queue": _queue_names},
    "bind": _declared,
    "unbind": {"pick": _picks, "transacted": _inside, "tx_pick": _picks},
    "destroy_or_create_address": {"transacted": _inside, "pick": _picks},
    "pass_time": {"passed_ms": st.sampled_from([100, 400, GRACE_MS]), "ticks": st.booleans()},
}

_OFTEN = ["send", "acknowledge", "acknowledge", "commit"]
operations = st.one_of(
    *(st.tuples(st.just(name), st.fixed_dictionaries(ARGUMENTS[name])) for name in [*ARGUMENTS, *_OFTEN])
)
"""Any of them with its arguments."""


def config_of(queue: str) -> QueueConfig:
    address, durable = QUEUES[queue]
    elsewhere = QUEUES[DISPOSING[queue]][0] if queue in DISPOSING else ""
    return QueueConfig(
        queue,
        address,
        durable=durable,
        deliveries_max=LIMITS.get(queue, 0),
        expiry_address=elsewhere,
        dead_letter_address=elsewhere,
        journaled_acquisition=queue in JOURNALED,
    )
