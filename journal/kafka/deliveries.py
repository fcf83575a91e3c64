"""Delivery reports of one send: which records arrived, at which offsets, and the first error."""

from __future__ import annotations

from itertools import islice

from confluent_kafka import KafkaError, Message


class PartitionReports:
    """The delivery reports of one send's records to one partition, in the order in which they were sent."""

    __slots__ = ("first_error", "offsets")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.first_error: KafkaError | None = None

    def report(self, error: KafkaError | None, message: Message) -> None:
        """Take the report of the next record. Hot path: one call a row."""
        offset = message.offset() if error is None else None
        self.offsets.append(-1 if offset is None else offset)
        if error is not None and self.first_error is None:
            self.first_error = error


class Deliveries:
    """The delivery reports of one send, to any number of partitions.

    An idempotent producer reports a partition's records in the order in which they were sent. So all records of a
    partition share one callback: a row costs 0.8 microseconds with its produce call, and 2.7 with a callback of its
    own.
    """

    def __init__(self) -> None:
        self.produced = 0
        self._partitions: dict[tuple[str, int], PartitionReports] = {}
        self._runs: list[tuple[PartitionReports, int]] = []
        """Runs of records that were sent one after another to one partition. For each run: the partition's reports, and
        the number of this partition's records that were sent before it."""

    def begin_run(self, topic: str, partition: int) -> PartitionReports:
        """Begin a run: the records sent from now on go to `partition`."""
        reports = self._partitions.setdefault((topic, partition), PartitionReports())
        self._runs.append((reports, self.produced))
        return reports

    @property
    def waiting(self) -> int:
        """Number of records sent that have no report yet."""
        return self.produced - sum(len(reports.offsets) for reports in self._partitions.values())

    @property
    def first_error(self) -> KafkaError | None:
        """The first error of the first partition that has one."""
        errors = (reports.first_error for reports in self._partitions.values())
        return next((error for error in errors if error is not None), None)

    @property
    def failed_topic(self) -> str:
        """The topic that `first_error` concerns; empty if there is no error."""
        failed = (topic for (topic, _), reports in self._partitions.items() if reports.first_error is not None)
        return next(failed, "")

    def offsets(self) -> list[int]:
        """Offsets in the order in which the records were sent. Call it once no record is `waiting`.

        An offset is -1 if the broker did not tell it, because the record had arrived with an earlier request whose
        answer was lost.
        """
        if len(self._partitions) == 1:
            return next(iter(self._partitions.values())).offsets
        offsets = {id(reports): iter(reports.offsets) for reports in self._partitions.values()}
        ends = [began for _, began in self._runs[1:]] + [self.produced]
        return [
            offset
            for (reports, began), end in zip(self._runs, ends, strict=True)
            for offset in islice(offsets[id(reports)], end - began)
        ]
