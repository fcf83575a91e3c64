"""Filters of a source: what a receiver asks for, as described values or by the names that clients use.

The descriptors are those that Apache's clients registered; JMS clients put the same values under `jms-selector` and
`no-local`. Whatever is not known here is not in force, and the answer to the attach must not name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from journal.amqp.conditions import INVALID_FIELD
from journal.amqp.values import Described, Symbol
from journal.errors import AmqpPeerError

SELECTOR_DESCRIPTORS = (0x0000468C00000004, "apache.org:selector-filter:string")
NO_LOCAL_DESCRIPTORS = (0x0000468C00000003, "apache.org:no-local-filter:list")
SELECTOR_NAMES = ("jms-selector", *SELECTOR_DESCRIPTORS[1:])
NO_LOCAL_NAMES = ("no-local", *NO_LOCAL_DESCRIPTORS[1:])


class SourceFilters(NamedTuple):
    """The filters of a source that a broker can put in force."""

    selector: str | None
    """A selector in the language of JMS."""

    no_local: bool
    """Messages that were sent on the same connection are not wanted."""

    in_force: Mapping[Any, Any]
    """The entries of the filter set that the two came from, for the answer to the attach."""


def source_filters(filters: Mapping[Any, Any] | None) -> SourceFilters:
    """The known filters of a set. Raises `AmqpPeerError` for a selector that is no string, or two selectors."""
    selector, no_local = None, False
    in_force: dict[Any, Any] = {}
    for name, entry in (filters or {}).items():
        descriptor = entry.descriptor if isinstance(entry, Described) else None
        value = entry.value if isinstance(entry, Described) else entry
        if descriptor in SELECTOR_DESCRIPTORS or (descriptor is None and name in SELECTOR_NAMES):
            if type(value) is not str or selector is not None:
                raise AmqpPeerError(INVALID_FIELD, f"the filter {name} is not the only selector, or is no string")
            selector = value
        elif descriptor in NO_LOCAL_DESCRIPTORS or (descriptor is None and name in NO_LOCAL_NAMES):
            no_local = value is not False
        else:
            continue
        in_force[name] = entry
    return SourceFilters(selector, no_local, in_force)


def selector_filter(selector: str) -> dict[Symbol, Described]:
    """A filter set that asks for a selector."""
    return {Symbol(SELECTOR_NAMES[0]): Described(Symbol(SELECTOR_DESCRIPTORS[1]), selector)}
