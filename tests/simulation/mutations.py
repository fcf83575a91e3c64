"""Faulty variants of the product, one step each: the simulation must catch every one.

A mutation replaces functions in the running process, never a file; `applied` puts them back. Each says in one line what
is wrong with it. `mutations_writing` has those of the active node, `mutations_tables` those of workers and copies,
`mutations_reading` those of how far the WAL is read, `mutations_disks` those of disks that fail, `mutations_kafka`
those of how Kafka's worse sides are taken, `mutations_proofs` those of what proves a decision, and `mutations_nodes`
those of who decides to be active and of disks that it waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Patch = tuple[Any, str, Any]
"""A class or module, the name of what is replaced in it, and the faulty variant."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A named fault of the product."""

    name: str
    wrong: str
    patches: Callable[[], list[Patch]]


MUTATIONS: dict[str, Mutation] = {}


def mutation(patches: Callable[[], list[Patch]]) -> Callable[[], list[Patch]]:
    """Register a function, whose name and docstring are the mutation's, and which makes its patches."""
    MUTATIONS[patches.__name__] = Mutation(patches.__name__, (patches.__doc__ or "").strip(), patches)
    return patches


@contextmanager
def applied(name: str | None) -> Iterator[None]:
    """The product with that fault; None: as it is."""
    patches = MUTATIONS[name].patches() if name is not None else []
    before = [(target, attribute, vars(target)[attribute]) for target, attribute, _ in patches]
    for target, attribute, faulty in patches:
        setattr(target, attribute, faulty)
    try:
        yield
    finally:
        for target, attribute, original in before:
            setattr(target, attribute, original)
