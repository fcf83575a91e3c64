"""How a chain releases all that a holder holds: in steps, and between them others use the chain.

A step of the first store releases a bounded group, and the other stores release the same messages before the chain's
lock is given up. At the end the others release what only they still hold for the holder.
"""

from __future__ import annotations

from journal.store.chain.core import ChainCore
from journal.store.chain.lockstep import chained_id
from journal.store.operations.hold import Releasing
from journal.store.pending import Pending


def release_holder(core: ChainCore, name: str, *, counts: bool) -> Pending:
    """Release the holder's messages in all stores. The result is done when the last groups of all stores are."""
    steps, others = core.steps, range(1, len(core.stores))
    with core.lock:
        releasing = [steps.ask_first(lambda store: store.releasing(name, counts=counts))]
        releasing += [steps.ask_other(place, lambda store: store.releasing(name, counts=counts)) for place in others]
    while _step(core, releasing):
        pass
    for place in others:
        while _step_of(core, place, releasing[place]):
            pass
    with core.lock:
        return Pending(0, steps.joined([each.completion for each in releasing]).completion)


def _step(core: ChainCore, releasing: list[Releasing]) -> bool:
    """Release some messages in all stores; False if the first store has none left."""
    steps, (first, *others) = core.steps, releasing
    with core.lock:
        released = steps.ask_first(lambda _: first.step())
        if released is None:
            return False
        held = [(chained_id(message), queue) for message, queue in released]
        for place, other in enumerate(others, 1):
            steps.ask_other(place, lambda _, other=other: other.follow(held))  # type: ignore[misc]
        return True


def _step_of(core: ChainCore, place: int, other: Releasing) -> bool:
    """Release some messages that only another store still holds; False if none are left."""
    with core.lock:
        core.steps.require_turn()
        return core.steps.ask_other(place, lambda _: other.step()) is not None
