"""The demo's result, for people."""

from __future__ import annotations

from journal.cli.flights.corrections import Corrected
from journal.cli.flights.expected import QueueComparison
from journal.cli.flights.landed import RoutedFlights
from journal.cli.flights.result import ACTIVATION_PARTS, NodeRun, Result
from journal.cli.spark.analytics import show as show_analytics
from journal.cli.tables import print_facts, print_table


def show(result: Result) -> None:
    """Print what the nodes did, the result, and the queues as Spark saw them, on standard output."""
    first, second = _column(result.first), _column(result.second)
    title = f"{result.flights:,} departures, {result.operations:,} operations in {result.seconds:.0f} s"
    print_table(title, ("", "node 1", "node 2"), [(name, first[name], second[name]) for name in first])
    print_facts("failover and result", _facts(result))
    if "missing" not in result.analytics:
        show_analytics(result.analytics)


def verdict(result: Result) -> list[str]:
    """The problems and where they are, or one line that all is well."""
    problems = result.problems()
    if not problems:
        return ["every queue and topic is as the flights say, and verify agrees"]
    after_failover = result.second.comparison.differences if result.second.comparison else []
    routed = [*result.routed.differences, *result.corrected.differences]
    return [*problems, *after_failover, *result.final.differences, *routed]


def looked_back(result: Result) -> str:
    """A line that says where the report is, or why there is none."""
    missing = result.analytics.get("missing")
    if missing is not None:
        return f"no queue analytics, for want of Spark: {missing}"
    return f"plots of the queues: {result.analytics['report']}"


def _column(run: NodeRun) -> dict[str, str]:
    told = run.to_json()
    column = {"epoch": f"{told['epoch']}"}
    for part in ACTIVATION_PARTS:
        column[f"activation: {part.removesuffix('_s')}"] = f"{told[part] * 1000:,.0f} ms"
    return column | {
        "messages loaded": f"{told['messages_loaded']:,} in {told['queues_loaded']} queues",
        "planes that re-attached": f"{told['planes_reattached']:,}",
        "in doubt, loaded": f"{told['prepared_loaded']:,}",
        "operations acknowledged": f"{told['operations']:,}",
        "seconds": f"{told['seconds']:.1f}",
        "operations/s": f"{told['operations_per_s']:,}",
    }


def _facts(result: Result) -> dict[str, str]:
    first, second, verify = result.first, result.second, result.verify
    facts = {
        "in flight when node 1 was killed": f"{first.appended - first.operations:,} operations",
        "last step acknowledged by node 1": f"{first.step:,}",
        "last step loaded by node 2": f"{second.resumed_step:,}",
        "compared after the failover": _compared(second.comparison),
        "from the kill to an active node": f"{result.without_active_node_s:.1f} s",
        "days in doubt": f"{result.days_in_doubt}: {second.committed} committed, {second.rolled_back} rolled back",
        "worker's catch-up with the last operation": f"{result.catch_up_s * 1000:,.0f} ms",
        "compared in the end": _compared(result.final),
        f"routed to {result.routed.topic}": _once(result.routed.found, "landed flights", result.routed),
        f"taken in from {result.corrected.topic}": _once(result.corrected.found, "corrections", result.corrected),
        "verify": "agrees" if verify["agrees"] else "DIFFERS",
    }
    return facts | {f"memory, {name}": f"{peak / 2**20:,.0f} MiB" for name, peak in result.memory_bytes.items()}


def _once(found: int, what: str, compared: RoutedFlights | Corrected) -> str:
    return (
        f"{found:,} of {compared.expected:,} {what}, {compared.twice:,} twice: {compared.different or 'no'} differences"
    )


def _compared(comparison: QueueComparison | None) -> str:
    if comparison is None:
        return "nothing"
    flights = (
        f"{comparison.loaded_messages:,} flights in {comparison.queues} queues, {comparison.held:,} of them held by "
    )
    flights += f"planes, {comparison.loaded_prepared} transactions"
    return f"{flights}: {comparison.different or 'no'} differences"
