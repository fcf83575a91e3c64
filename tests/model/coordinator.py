"""What Kafka does: one transactional id, its transaction, and what read_committed readers of WAL and control see.

As in Apache Kafka 3.6 and later: the newest InitProducerId wins and aborts what was open; a request of an older
producer is refused; EndTxn(commit) is decided at once and becomes visible partition by partition, and until it is, the
next produce or init waits; a produce is verified to belong to the open transaction.
"""

from __future__ import annotations

from .state import At, Broker, Config, Hidden, Log, Node, Request, Row, Steps, Transaction, World


def is_open(broker: Broker) -> bool:
    """Whether a transaction is open: produced to, and not yet ended."""
    return broker.transaction is not None and not broker.transaction.committed


def is_settling(broker: Broker) -> bool:
    """Whether a committed transaction's markers are still being written: clients get CONCURRENT_TRANSACTIONS."""
    return broker.transaction is not None and broker.transaction.committed


def initialised(broker: Broker, newest: int | None) -> Broker:
    """After an InitProducerId: what was open is aborted, and every older producer's request will be refused."""
    return broker._replace(newest=newest, transaction=None, late_end=False, late_produce=None)


def appended(broker: Broker, request: Request) -> Broker:
    """After a produce: its frame, and the counter row if it carries one, are in the open transaction."""
    before = broker.transaction or Transaction(False, None, (None,) * len(broker.wal))
    frames = (*before.frames[: request.shard], request.frame, *before.frames[request.shard + 1 :])
    return broker._replace(transaction=Transaction(False, request.row or before.row, frames))


def ended(broker: Broker) -> Broker:
    """After EndTxn(commit): an open transaction is committed. Asked again, the coordinator just says yes."""
    if broker.transaction is None or broker.transaction.committed:
        return broker
    return broker._replace(transaction=broker.transaction._replace(committed=True))


def committed(broker: Broker) -> tuple[Log, ...]:
    """Per shard the committed WAL, visible to everybody yet or not."""
    if not is_settling(broker) or broker.transaction is None:
        return broker.wal
    return tuple(
        log if frame is None else (*log, frame)
        for log, frame in zip(broker.wal, broker.transaction.frames, strict=True)
    )


def control_rows(broker: Broker, to_high_watermark: bool) -> int | None:
    """How many rows of control a reader finds; None while it has to wait.

    A read_committed reader sees what lies below the LSO, which anybody's open transaction holds back. One that wants
    to have read up to the high watermark waits until nothing is open.
    """
    if to_high_watermark and (broker.foreign is not None or (broker.transaction and broker.transaction.row)):
        return None
    return len(broker.control) if broker.foreign is None else broker.foreign


def highest_epoch(wal: tuple[Log, ...]) -> int:
    """The newest epoch that the WAL knows of."""
    return max((log[-1].epoch for log in wal if log), default=0)


def visible(broker: Broker) -> tuple[Log, ...]:
    """Per shard what read_committed readers find: it ends where somebody else's transaction stands open."""
    if broker.hidden is None:
        return broker.wal
    shard, behind = broker.hidden
    return (*broker.wal[:shard], broker.wal[shard][:behind], *broker.wal[shard + 1 :])


def wal_as_of_now(broker: Broker, to_high_watermark: bool) -> tuple[Log, ...] | None:
    """The WAL as a reader finds it; None while one that wants to have read up to the high watermark has to wait."""
    if to_high_watermark and (broker.hidden is not None or (broker.transaction and any(broker.transaction.frames))):
        return None
    return visible(broker)


def broker_steps(config: Config, world: World) -> Steps:
    """Everything Kafka may do by itself, or a late request may make it do."""
    yield from marker_steps(world)
    broker, faults = world.broker, world.faults
    if broker.late_end and is_open(broker):
        yield "kafka: a late EndTxn(commit) arrives", world.kafka(ended(broker)._replace(late_end=False))
    if broker.late_produce and (broker.transaction is None or _takes(broker.transaction, broker.late_produce.shard)):
        arrived = appended(broker, broker.late_produce)._replace(late_produce=None)
        yield "kafka: a late produce arrives", world.kafka(arrived)
    if broker.late_inits and not is_settling(broker):
        fewer = broker._replace(late_inits=broker.late_inits - 1)
        yield "kafka: a late InitProducerId arrives", world.kafka(initialised(fewer, None))
    if faults.timeouts and is_open(broker):
        yield (
            "kafka: the coordinator times the transaction out",
            world.spend("timeouts").kafka(initialised(broker, None)),
        )
    if faults.foreign and broker.foreign is None:
        stuck = broker._replace(foreign=len(broker.control))
        yield "kafka: somebody else opens a transaction in control", world.spend("foreign").kafka(stuck)
    if faults.foreign_wal and broker.hidden is None:
        for shard, log in enumerate(broker.wal):
            stuck = broker._replace(hidden=Hidden(shard, len(log)))
            yield f"kafka: somebody else opens a transaction in shard {shard}", world.spend("foreign_wal").kafka(stuck)
    if faults.tails and len(broker.control) > 1 and broker.foreign is None:
        lost = broker._replace(control=broker.control[:-1])
        yield "kafka: the newest row of control is lost", world.spend("tails").kafka(lost)
    yield from foreign_steps(world)
    yield from repair_steps(config, world)


def repair_steps(config: Config, world: World) -> Steps:
    """An operator writes the highest epoch of all anew, for nobody, where somebody has noticed that it is lost."""
    highest = highest_epoch(committed(world.broker))
    if world.broker.control[-1].epoch >= highest or all(node.at is not At.NOTICED for node in world.nodes):
        return
    repaired = world.kafka(world.broker._replace(control=(*world.broker.control, Row(highest, config.nodes, -1))))
    for n, node in enumerate(world.nodes):
        if node.at is At.NOTICED:
            repaired = repaired.node(n, **Node(activation=node.activation)._asdict())
    yield "operator: repairs the control rows", repaired


def marker_steps(world: World) -> Steps:
    """A committed transaction becomes visible, one partition after the other in any order."""
    broker, transaction = world.broker, world.broker.transaction
    if transaction is None or not transaction.committed:
        return
    if transaction.row:
        left = _left(transaction._replace(row=None))
        yield (
            "kafka: the counter becomes visible",
            world.kafka(broker._replace(control=(*broker.control, transaction.row), transaction=left)),
        )
    for shard, frame in enumerate(transaction.frames):
        if frame is not None:
            wal = (*broker.wal[:shard], (*broker.wal[shard], frame), *broker.wal[shard + 1 :])
            frames = (*transaction.frames[:shard], None, *transaction.frames[shard + 1 :])
            left = _left(transaction._replace(frames=frames))
            yield f"kafka: shard {shard} shows the transaction", world.kafka(broker._replace(wal=wal, transaction=left))


def foreign_steps(world: World) -> Steps:
    """A foreign transaction ends by itself, if only by its time-out."""
    if world.broker.foreign is not None:
        yield "kafka: the foreign transaction in control ends", world.kafka(world.broker._replace(foreign=None))
    if world.broker.hidden is not None:
        yield "kafka: the foreign transaction in the WAL ends", world.kafka(world.broker._replace(hidden=None))


def _left(transaction: Transaction) -> Transaction | None:
    return transaction if transaction.row or any(transaction.frames) else None


def _takes(transaction: Transaction, shard: int) -> bool:
    """One frame a shard is all that a transaction holds here: a second one is not modelled, and never needed."""
    return not transaction.committed and transaction.frames[shard] is None
