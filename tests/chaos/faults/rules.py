"""What a network drops, as nftables rules of its bridge. Pure.

Every rule set replaces the one before it as a whole, so what is dropped is always exactly what was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

TABLE = "faults"
_LOSS_STEPS = 1000


@dataclass(frozen=True, eq=False)
class Cut:
    """No packet goes from one of these addresses to one of those. Two alike are two cuts: each is healed by itself."""

    senders: tuple[str, ...]
    receivers: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Loss:
    """So many percent of the packets from and to an address are lost, at random."""

    address: str
    percent: float


def render(rules: Iterable[Cut | Loss]) -> str:
    """The input of `nft -f`."""
    lines = [line for rule in rules for line in _lines(rule)]
    body = "".join(f"    {line}\n" for line in lines)
    return (
        f"table bridge {TABLE}\n"
        f"delete table bridge {TABLE}\n"
        f"table bridge {TABLE} {{\n"
        "  chain forward {\n"
        "    type filter hook forward priority 0; policy accept;\n"
        f"{body}"
        "  }\n"
        "}\n"
    )


def _lines(rule: Cut | Loss) -> list[str]:
    match rule:
        case Cut(senders, receivers):
            return [f"ip saddr {_set(senders)} ip daddr {_set(receivers)} drop"]
        case Loss(address, percent):
            steps = round(percent * _LOSS_STEPS / 100)
            lost = f"numgen random mod {_LOSS_STEPS} < {steps} drop"
            return [f"ip saddr {address} {lost}", f"ip daddr {address} {lost}"]


def _set(addresses: tuple[str, ...]) -> str:
    return "{ " + ", ".join(addresses) + " }"
