"""A simulated cluster that remembers, for the checker alone, which transaction each record was written in."""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation.broker import Answer, Instance, SimulatedBroker
from tests.simulation.faults import Faults
from tests.simulation.timeline import Timeline


class RecordingBroker(SimulatedBroker):
    """`transactions` has, by topic, partition and offset, the producer id and the number of its transaction."""

    def __init__(self, timeline: Timeline, faults: Faults) -> None:
        super().__init__(timeline, faults)
        self.transactions: dict[tuple[str, int, int], tuple[int, int]] = {}

    def produce(
        self,
        transactional_id: str,
        instance: Instance,
        topic: str,
        partition: int,
        records: Sequence[tuple[bytes | None, bytes | None]],
        sequence: int = 0,
    ) -> list[int] | Answer:
        answer = super().produce(transactional_id, instance, topic, partition, records, sequence)
        if not isinstance(answer, Answer):
            number = instance.producer, self._ids[transactional_id].number
            for offset in answer:
                self.transactions[topic, partition, offset] = number
        return answer
