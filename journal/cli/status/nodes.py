"""The nodes in `status`: which one is active, which could take over, and how the last failover went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from journal.cli.text import duration
from journal.topics.control_rows import ControlRows, NodeRow
from journal.v1.journal_pb2 import Failover
from loaders.node.liveness import Members, could_take_over, is_gone
from loaders.node.roles import Role

NODE_COLUMNS = ("node", "role", "since", "epoch", "takes over", "lag", "last report", "why")

_PARTS = ("silence", "fence", "claim", "gate", "load", "ready", "callback")


def node_lines(rows: ControlRows, now_ms: float, members: Members = None) -> list[dict[str, Any]]:
    """The nodes by name, as `--json` prints them; `members` are those in their group.

    A node is `gone` if its report is late by more than its interval. A node is `fit` only while it is in the group.
    """
    return [_line(row, now_ms, members) for _, row in sorted(rows.nodes.items())]


def _line(row: NodeRow, now_ms: float, members: Members) -> dict[str, Any]:
    status, timestamp = row
    gone, fit, why_not = is_gone(row, now_ms), could_take_over(row, now_ms, members), status.why_not
    if status.fit and status.role == Role.STANDBY.value and not fit:
        why_not = "its report is late" if gone else "not in the nodes' group: joining, or gone"
    return {
        "name": status.name,
        "role": status.role,
        "gone": gone,
        "epoch": status.epoch,
        "since": status.since,
        "reason": status.reason,
        "fit": fit,
        "why_not": why_not,
        "lag_offsets": status.lag_offsets,
        "lag_seconds": status.lag_ms / 1000,
        "preferred": status.preferred,
        "members": None if members is None else list(members).count(status.name),
        "last_seen_seconds": round(max(0.0, now_ms - timestamp) / 1000, 3),
        "host": status.host,
        "pid": status.pid,
        "recoveries": status.recoveries,
        "checks": status.checks,
        "inits": status.inits,
        "last_failover": failover_line(status.last_failover) if status.HasField("last_failover") else None,
    }


def failover_line(failover: Failover) -> dict[str, Any]:
    """A failover as `--json` prints it; `total_ms` lasts from the fence to the return of the owner's callback."""
    parts = {f"{part}_ms": round(getattr(failover, f"{part}_ms"), 3) for part in _PARTS}
    return {
        "epoch": failover.epoch,
        "timestamp": failover.timestamp,
        "reason": failover.reason,
        "warm": failover.warm,
        **parts,
        "total_ms": round(sum(parts.values()) - parts["silence_ms"], 3),
    }


def node_row(line: dict[str, Any], now_ms: float) -> tuple[object, ...]:
    """A row of the table."""
    if line["gone"]:
        takes_over = "no: gone"
    elif line["role"] == Role.ACTIVE.value:
        takes_over = ""
    elif line["role"] == Role.ACTIVATING.value:
        takes_over = f"no: {line['role']}"  # its copy is lent to the activation, which makes it unfit
    else:
        takes_over = "yes, warm" if line["fit"] else f"no: {line['why_not'] or line['role']}"
    lag = f"{line['lag_offsets']:,} ({duration(line['lag_seconds'])})" if line["lag_offsets"] else "0"
    return (
        line["name"] + (" (preferred)" if line["preferred"] else ""),
        f"{line['role']}?" if line["gone"] else line["role"],
        f"{duration((now_ms - line['since']) / 1000)} ago",
        line["epoch"] or "",
        takes_over,
        "" if line["role"] == Role.ACTIVE.value else lag,
        f"{duration(line['last_seen_seconds'])} ago",
        line["reason"],
    )


def namesake_notes(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Notes on names that several members of the nodes' group have. Each name has one row, of whoever reported last."""
    return [
        f"{line['members']} nodes are named {line['name']}, and the table shows the one that reported last: names must "
        "differ, unless one of them has just died"
        for line in lines
        if line["members"] is not None and line["members"] > 1
    ]


def recovery_notes(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Notes on the recoveries of an active node's writer."""
    return [
        f"node {line['name']} has recovered {line['recoveries']} times since it became active "
        f"({line['checks']} checks, {line['inits']} producers): its log says why"
        for line in lines
        if line["role"] == Role.ACTIVE.value and line["recoveries"]
    ]


def failover_note(lines: Sequence[dict[str, Any]], now_ms: float) -> str | None:
    """The newest failover that any node reports, with its parts; None if there was none."""
    found = [(line["last_failover"], line["name"]) for line in lines if line["last_failover"]]
    if not found:
        return None
    failover, name = max(found, key=lambda each: (each[0]["epoch"], each[1]))
    parts = ", ".join(f"{part} {failover[f'{part}_ms']:.0f} ms" for part in _PARTS[1:])
    silence = f"; the WAL had stood still for {failover['silence_ms'] / 1000:.1f} s" if failover["silence_ms"] else ""
    how = "warm" if failover["warm"] else "cold"
    when = duration((now_ms - failover["timestamp"]) / 1000)
    return (
        f"last failover: epoch {failover['epoch']} to {name}, {how}, {when} ago, "
        f"in {failover['total_ms']:.0f} ms ({parts}){silence}: {failover['reason']}"
    )
