"""The result of the demo, and its problems."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from journal.cli.flights.corrections import Corrected
from journal.cli.flights.expected import QueueComparison
from journal.cli.flights.landed import RoutedFlights
from journal.cli.flights.processes import Event


@dataclass(slots=True)
class NodeRun:
    """What a node reported: its activation, where it began, and what is acknowledged."""

    activation: Event = field(default_factory=dict)
    comparison: QueueComparison | None = None
    resumed_step: int = 0
    resumed_operations: int = 0
    step: int = 0
    operations: int = 0
    appended: int = 0
    seconds: float = 0.0
    committed: int = 0
    rolled_back: int = 0
    progress_step: int = 0
    """The number of the step that the stored progress has at the end: the last step's, or the one before if the last
    step was only prepared."""

    def take(self, event: Event) -> None:
        """Note an event. Events about progress change nothing."""
        match event["event"]:
            case "active":
                self.activation = event
            case "resumed":
                self.comparison = QueueComparison(**event["comparison"])
                self.resumed_step, self.resumed_operations = event["step"], event["operations"]
            case "acknowledged":
                self.step, self.operations, self.seconds = event["step"], event["operations"], event["seconds"]
                self.appended = event["appended"]
            case "settled":
                self.committed, self.rolled_back = event["committed"], event["rolled_back"]
                self.progress_step = event["progress_step"]

    @property
    def done(self) -> int:
        """Number of operations that this node itself appended; `operations` counts those of the nodes before it too."""
        return self.operations - self.resumed_operations

    def to_json(self) -> dict[str, Any]:
        done = self.done
        parts = {part: round(self.activation[part], 4) for part in ACTIVATION_PARTS}
        return {
            "epoch": self.activation["epoch"],
            **parts,
            "messages_loaded": self.comparison.loaded_messages if self.comparison else 0,
            "queues_loaded": self.comparison.queues if self.comparison else 0,
            "planes_reattached": self.activation["planes"],
            "prepared_loaded": self.activation["counts"]["prepared"],
            "operations": done,
            "seconds": self.seconds,
            "operations_per_s": round(done / self.seconds) if self.seconds else 0,
        }


ACTIVATION_PARTS = ("fence_s", "claim_s", "gate_s", "load_s", "ready_s")


@dataclass(slots=True)
class Result:
    """The whole run. `operations` are the store's operations on flights' messages: sent, acquired, acknowledged. They
    do not include progress, prepares and settlements; `seconds` does not include Spark's time.

    It has many attributes because it is the whole answer, one attribute for each part of the table.
    """

    flights: int
    operations: int
    days_in_doubt: int
    first: NodeRun
    second: NodeRun
    without_active_node_s: float
    catch_up_s: float
    final: QueueComparison
    final_step: int
    routed: RoutedFlights
    corrected: Corrected
    verify: dict[str, Any]
    analytics: dict[str, Any]
    """The queues as Spark saw them. If Spark did not run, `missing` says why, which is no problem of the journal's."""

    memory_bytes: dict[str, int]
    seconds: float

    def problems(self) -> list[str]:
        """All problems, a sentence each; none if the demo succeeded."""
        first, second, found = self.first, self.second, []
        if second.activation["epoch"] <= first.activation["epoch"]:
            found.append("node 2 did not begin an epoch of its own")
        if second.resumed_step < first.step:
            found.append(f"step {first.step} was acknowledged, and the load went only to step {second.resumed_step}")
        if second.comparison is None or second.comparison.different:
            found.append("what node 2 loaded is not what the flights had come to")
        if second.operations != self.operations:
            found.append(f"{second.operations} of {self.operations} operations were acknowledged")
        if second.committed + second.rolled_back != self.days_in_doubt:
            settled = second.committed + second.rolled_back
            found.append(f"{self.days_in_doubt} days were to be left in doubt, and {settled} were settled")
        if self.final.different:
            found.append("what the queues hold is not what the flights left")
        if self.final_step != second.progress_step:
            found.append(f"the progress stands at step {self.final_step}, not at {second.progress_step}")
        if self.routed.different:
            found.append(f"topic {self.routed.topic} does not have each landed flight once and in order")
        if self.corrected.different:
            found.append(f"the records of topic {self.corrected.topic} are not each one message and in order")
        if not self.verify.get("agrees"):
            found.append("verify found differences between WAL, tables and load")
        if not self.verify.get("complete"):
            found.append("verify could not check everything")
        return found

    def to_json(self) -> dict[str, Any]:
        """The result as one object. Units are in the keys."""
        problems = self.problems()
        return {
            "ok": not problems,
            "problems": problems,
            "flights": self.flights,
            "operations": self.operations,
            "node_1": self.first.to_json(),
            "node_2": self.second.to_json(),
            "failover": {
                "acknowledged_step": self.first.step,
                "operations_in_flight": self.first.appended - self.first.operations,
                "resumed_after_step": self.second.resumed_step,
                "without_active_node_s": self.without_active_node_s,
                "compared": asdict(self.second.comparison) if self.second.comparison else None,
            },
            "in_doubt": {
                "days": self.days_in_doubt,
                "loaded_after_failover": self.second.activation["counts"]["prepared"],
                "committed": self.second.committed,
                "rolled_back": self.second.rolled_back,
            },
            "worker": {"catch_up_s": self.catch_up_s},
            "compared": asdict(self.final),
            "routed": asdict(self.routed),
            "corrections": asdict(self.corrected),
            "verify": self.verify,
            "analytics": self.analytics,
            "memory_mib": {name: round(peak / 2**20, 1) for name, peak in self.memory_bytes.items()},
            "seconds": self.seconds,
        }
