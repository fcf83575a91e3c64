"""The demo, from an empty journal to the verdict: two nodes, two workers, and a SIGKILL of the first ones between.

worker 1, node 1      send, acquire, acknowledge; killed when half of the operations are acknowledged
worker 2, node 2      fence, gate, load, find out where the first one was, carry on, settle what is in doubt
this process          produces corrections for the nodes; at the end compares queues and topic with the flights,
                      and runs `verify` and Spark's analytics
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from journal.cli.flights.catch_up import catch_up_seconds
from journal.cli.flights.corrections import (
    Corrected,
    Correction,
    Corrector,
    compare_corrections,
    corrections_of,
    corrections_topic,
)
from journal.cli.flights.data import find_flights, read_in_order, write_in_order
from journal.cli.flights.expected import CORRECTIONS, PROGRESS, QueueComparison, compare, contents_of, final_state
from journal.cli.flights.plan import DoubtRule, doubt_rule, operations_of
from journal.cli.flights.processes import Child, Event, Processes
from journal.cli.flights.result import NodeRun, Result
from journal.cli.flights.routed import compare_routed, make_topics, with_routing
from journal.cli.flights.settings_file import toml_of
from journal.cli.init import made_journal
from journal.cli.operations.views import read_message
from journal.cli.reading import loaded_snapshot, opened_journal
from journal.config import Settings
from journal.errors import DeadlineError, DemoError
from journal.kafka.clients import kafka_of
from journal.process.progress import Progress
from journal.store.model import ReferenceInfo
from journal.store.settings import REFERENCES_IN_MEMORY_MAX
from journal.v1.journal_pb2 import Identity
from journal.words import called
from loaders.queues import QueueLoader

CATCH_UP_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: a file of `flights` in order, and the numbers that follow from it."""

    archive: Path
    rows: int | None
    flights: Path
    count: int
    operations: int
    rule: DoubtRule
    days_in_doubt: int
    corrections: list[Correction]


class Demo:
    """One run in `work`, a directory of its own. `say` is called with each stage, for people."""

    def __init__(
        self,
        settings: Settings,
        work: Path,
        processes: Processes,
        progress: Progress,
        say: Callable[[str], None],
        *,
        report: Path,
        archived: bool,
    ) -> None:
        """`report` is the file for the page of queue analytics. They come from an archive if the run is `archived`,
        otherwise from the WAL."""
        self._report = report
        self._archived = archived
        self._settings = with_routing(settings)
        self._work = work
        self._processes = processes
        self._progress = progress
        self._say = say
        self._config = work / "settings.toml"

    def run(self, rows: int | None) -> Result:
        """Run everything. Raises DemoError if a process ends too early, and the journal's errors."""
        began = time.monotonic()
        identity = self._init()
        worker = self._start_worker("worker 1")
        plan = self._plan(rows)
        corrector = self._corrector(plan)
        hold_at = plan.operations * 3 // 4
        node = self._start_node("node 1", plan, hold_at=hold_at)
        first = self._until_half(node, worker, plan, corrector, hold_at)
        node.kill()
        worker.kill()
        killed = time.monotonic()
        for event in node.events(look=_nothing):  # the node may have printed these lines before it was killed
            first.take(event)
        self._say(f"node 1 and worker 1 killed with SIGKILL, {first.operations:,} operations acknowledged")

        worker = self._start_worker("worker 2")
        node = self._start_node("node 2", plan)
        session_s = self._settings.session_timeout_ms / 1000
        told = f"at the latest when worker 1's session ends, after {session_s:g} s"
        self._say(f"node 2 waits at the gate until worker 2 has the shards, {told}")
        second, active = self._to_the_end(node, worker, plan, corrector)
        corrector.close()
        settled = f"committed {second.committed} days in doubt, rolled back {second.rolled_back}"
        self._say(f"node 2 is done: {second.done:,} operations acknowledged; it {settled}")

        catch_up_s = catch_up_seconds(
            kafka_of(self._settings),
            self._settings,
            identity,
            timeout_s=CATCH_UP_TIMEOUT_S,
            look=worker.require_alive,
        )
        final, final_step, corrected = self._compare(plan)
        landed = compare_routed(kafka_of(self._settings), self._settings, plan.flights)
        told = f"{landed.found:,} landed flights in topic {landed.topic}, {corrected.found:,} corrections taken in"
        self._say(f"{told}: {landed.different + corrected.different or 'no'} differences")
        verify = self._verify()
        worker.stop()
        worker.require_success()
        seconds = round(time.monotonic() - began, 3)
        return Result(
            flights=plan.count,
            operations=plan.operations,
            days_in_doubt=plan.days_in_doubt,
            first=first,
            second=second,
            without_active_node_s=round(active - killed, 3),
            catch_up_s=catch_up_s,
            final=final,
            final_step=final_step,
            routed=landed,
            corrected=corrected,
            verify=verify,
            analytics=self._analytics(),
            memory_bytes=self._processes.peaks(),
            seconds=seconds,
        )

    # ---- preparation -----------------------------------------------------------------------------------------------

    def _plan(self, rows: int | None) -> Plan:
        archive = find_flights()
        path = self._work / "flights.csv"
        write_in_order(archive, rows, path)
        count = operations = 0
        days: set[int] = set()
        cancelled_days: set[int] = set()
        for flight in read_in_order(path):
            count += 1
            operations += operations_of(flight)
            days.add(flight.day)
            if flight.cancelled:
                cancelled_days.add(flight.day)
        rule = doubt_rule(len(days))
        self._say(f"{count:,} departures of {len(days)} days: {operations:,} operations")
        in_doubt = sum(rule.in_doubt(day) for day in cancelled_days)
        return Plan(archive, rows, path, count, operations, rule, in_doubt, corrections_of(read_in_order(path)))

    def _init(self) -> Identity:
        settings = self._settings
        rows = made_journal(settings, None)
        if rows.epoch.epoch:
            raise DemoError(f"{called(settings.journal)} was used before: name a new one with -j")
        make_topics(kafka_of(settings), settings)
        self._config.write_text(toml_of(settings), encoding="utf-8")
        return rows.require_identity(settings.journal)

    # ---- processes -------------------------------------------------------------------------------------------------

    def _corrector(self, plan: Plan) -> Corrector:
        settings = self._settings
        producer = kafka_of(settings).plain_producer()
        topic = corrections_topic(settings.journal)
        return Corrector(plan.corrections, topic, producer, settings.request_timeout_ms / 1000)

    def _start_worker(self, name: str) -> Child:
        return self._processes.start(name, self._command("worker"))

    def _command(self, name: str) -> list[str]:
        return ["-m", "journal.cli.child", name, "--config", str(self._config)]

    def _start_node(self, name: str, plan: Plan, *, hold_at: int = 0) -> Child:
        """Start a node. With `hold_at` it goes no further than that many operations, so that the kill finds it writing
        even in a short run."""
        arguments = ["-m", "journal.cli.flights.node", "--config", str(self._config), "--name", name.replace(" ", "-")]
        arguments += ["--flights", str(plan.flights), "--in-doubt-every-days", str(plan.rule.every_days)]
        arguments += ["--corrections", str(len(plan.corrections))]
        return self._processes.start(name, [*arguments, "--hold-at", str(hold_at)])

    def _until_half(self, node: Child, worker: Child, plan: Plan, corrector: Corrector, hold_at: int) -> NodeRun:
        """Follow a node until half of all operations are acknowledged and, unless it holds, others are in flight."""
        run = NodeRun()
        for event in node.events(look=worker.require_alive):
            run.take(event)
            self._show("node 1", event, plan.operations)
            corrector.produce_until(run.operations, plan.operations)
            in_flight, holds = run.appended > run.operations, run.appended >= hold_at
            if run.operations * 2 >= plan.operations and (in_flight or holds):
                worker.require_alive()
                return run
        raise node.ended()

    def _to_the_end(self, node: Child, worker: Child, plan: Plan, corrector: Corrector) -> tuple[NodeRun, float]:
        """Follow a node until it ends; returns what it reported, and when it became active."""
        run = NodeRun()
        active = 0.0
        for event in node.events(look=worker.require_alive):
            run.take(event)
            self._show("node 2", event, plan.operations)
            corrector.produce_until(run.operations, plan.operations)
            if event["event"] == "active":
                active = time.monotonic()
                self._say_active(event)
        node.require_success()
        return run, active

    def _say_active(self, event: Event) -> None:
        counts = event["counts"]
        held = f"{counts['records']:,} records, {counts['prepared']} transactions in doubt"
        self._say(f"node 2 is active in epoch {event['epoch']}: {held}, {event['planes']:,} planes re-attach")

    def _show(self, name: str, event: Event, operations: int) -> None:
        if event["event"] == "progress":
            self._progress(f"{name} {event['step']}", event["done"], event["total"])
        elif event["event"] == "acknowledged":
            self._progress(name, event["operations"], operations)

    # ---- comparison ------------------------------------------------------------------------------------------------

    def _compare(self, plan: Plan) -> tuple[QueueComparison, int, Corrected]:
        """Compare every queue of a load with the flights, the last step with the plan, and the queue of corrections
        with the produced records."""
        settings = self._settings
        loader = QueueLoader(
            references_in_memory_max=REFERENCES_IN_MEMORY_MAX, queue_references_in_memory_max=REFERENCES_IN_MEMORY_MAX
        )
        with (
            opened_journal(settings) as (kafka, rows),
            loaded_snapshot(settings, kafka, rows, now=False, copies=self._work / "copies") as found,
        ):
            found.tell(loader)
            state = loader.loaded.state

            def browse(queue: str) -> Iterator[ReferenceInfo]:
                return state.browse(state.queue(queue).record_id)

            def body(message: int) -> bytes:
                return read_message(found.base, message).body

            prepared = {each.tx: {op.id for op in each.operations} for each in loader.loaded.prepared}
            names = [entry.config.name for entry in state.queues()]
            contents = contents_of(names, prepared, browse, body)
            step = max((int(body(info.message)) for info in browse(PROGRESS)), default=0)
            taken_in = [read_message(found.base, info.message) for info in browse(CORRECTIONS)]
        corrected = compare_corrections(corrections_topic(settings.journal), plan.corrections, taken_in)
        return compare(final_state(plan.archive, plan.rows, plan.rule), contents), step, corrected

    def _verify(self) -> dict[str, Any]:
        """The result of `kafka-journal verify`."""
        checker = self._processes.start("verify", [*self._command("verify"), "--json"])
        reports = list(checker.events(look=_nothing))
        if not reports:
            raise checker.ended()
        report = reports[-1]
        checker.log.with_suffix(".json").write_text(json.dumps(report, indent=1), encoding="utf-8")
        self._say(f"verify: WAL, tables and load {'agree' if report['agrees'] else 'do NOT agree'}")
        shards = report.pop("shards")
        return report | {name: sum(shard[name] for shard in shards) for name in ("wal_records", "rows", "records")}

    def _analytics(self) -> dict[str, Any]:
        """The results of Spark's analytics or, under `missing`, the reason why there are none. The demo succeeds
        without them."""
        arguments = [
            "-m",
            "journal.cli.flights.analytics",
            "--config",
            str(self._config),
            "--report",
            str(self._report),
        ]
        if self._archived:
            arguments += ["--archive", str(self._work / "archive")]
        child = self._processes.start("analytics", arguments)
        self._say("Spark looks back at the queues" + (", from an archive of the run" if self._archived else ""))
        try:
            told = [event for event in child.events(look=_nothing) if event["event"] in ("analytics", "missing")]
            if not told:
                raise child.ended()
        except (DemoError, DeadlineError) as error:
            child.stop(at_once=True)
            return {"missing": str(error)}
        found = told[-1]
        return {"missing": found["reason"]} if found.pop("event") == "missing" else found


def _nothing() -> None: ...
