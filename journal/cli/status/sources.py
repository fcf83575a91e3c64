"""The sources in `status`: what happened to their records, as the active node last reported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict

from journal.cli.text import duration
from journal.process.commands import command
from journal.v1.journal_pb2 import SourceReport, SourcesReport

_COUNTED = ("partitions", "records", "messages", "refused", "dead letters", "lag")
SOURCE_COLUMNS = ("source", "state", *_COUNTED, "latency ms", "at most")


def sources_json(report: SourcesReport | None, now_ms: float) -> dict[str, Any] | None:
    """What `--json` prints; None if no node has reported sources."""
    if report is None:
        return None
    return {
        "node": report.node,
        "reported_seconds": round(max(0.0, now_ms - report.timestamp) / 1000, 3),
        "state": report.state,
        "error": report.error,
        "unrouted": report.unrouted,
        "duplicates": report.duplicates,
        "sources": [_source_json(source) for source in report.sources],
    }


def _source_json(source: SourceReport) -> dict[str, Any]:
    said = MessageToDict(source, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    counts = {name: getattr(source, name) for name in ("records", "messages", "dead_letters", "lag")}
    # protobuf writes 64-bit numbers as text in JSON
    return {**said, **counts, "refused": dict(sorted(source.refused.items()))}


def source_rows(found: dict[str, Any]) -> list[Sequence[object]]:
    """The rows of the table."""
    return [
        (
            each["source"],
            each["state"].upper() if each["error"] else each["state"],
            each["partitions"],
            f"{each['records']:,}",
            f"{each['messages']:,}",
            ", ".join(f"{reason} {count:,}" for reason, count in each["refused"].items()) or "0",
            f"{each['dead_letters']:,}",
            f"{each['lag']:,}",
            f"{each['latency_ms']:,.0f}",
            f"{each['latency_ms_max']:,.0f}",
        )
        for each in found["sources"]
    ]


def source_notes(journal: str, found: dict[str, Any], active: str) -> list[str]:
    """Notes beside the table: who reported it, and what is stopped and how it goes on."""
    ago = f"{duration(found['reported_seconds'])} ago"
    lines = []
    if found["node"] != active:
        lines.append(f"the sources are as {found['node']} last reported, {ago}: it is not active now")
    if found["state"] == "paused":
        lines.append("the sources are paused: the journal has no room for more")
    if found["error"]:
        lines.append(f"the sources wait: {found['error']}")
    if found["unrouted"] or found["duplicates"]:
        lines.append(f"messages that no queue took: {found['unrouted']:,}; duplicates: {found['duplicates']:,}")
    for each in found["sources"]:
        if each["state"] == "waiting":
            lines.append(f"source {each['source']} is WAITING: {each['error']}")
            lines.append("  that is looked at every ten seconds: it goes on by itself once it is mended")
        elif each["error"]:
            lines.append(f"source {each['source']} is STOPPED: {each['error']}")
            resume = command("routes resume-source", each["source"], f"--node={found['node']}", journal=journal)
            lines.append(f"  once that is mended, on that node's machine: {resume}")
            lines.append("  the same with --skip passes over the record that stopped it, if one did")
    return lines
