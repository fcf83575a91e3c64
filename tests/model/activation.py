"""A node's way to active, one function a step: become leader, init, read, counter and markers, gate, READY."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from .coordinator import control_rows, highest_epoch, visible, wal_as_of_now
from .removals import Removal
from .requests import Answer, end_transaction, init, produce
from .state import READY_SHARD, At, Config, Frame, Kind, Log, Node, Outcome, Request, Row, Steps, World


def become_leader(config: Config, world: World, n: int) -> Steps:
    """Membership is advice: any node may think that it is the leader, at any time."""
    node, broker = world.nodes[n], world.broker
    if node.activation == config.activations:
        return
    changes: dict[str, object] = {"at": At.INIT, "activation": node.activation + 1}
    if config.lacks(Removal.CONTROL_AFTER_INIT):
        changes["epoch"] = broker.control[(broker.foreign or len(broker.control)) - 1].epoch + 1
    if config.lacks(Removal.TAILS_AFTER_INIT):
        changes["numbers"] = last_numbers(visible(broker))
    yield f"node {n}: starts activation {node.activation + 1}", world.node(n, **changes)


def first_init(config: Config, world: World, n: int) -> Steps:
    """Fences the predecessor and settles what it left open. A time-out is just asked again: nothing is taken yet."""
    for answer, how, after in init(world, n):
        yield f"node {n}: init{how}", after.node(n, at=At.READ) if answer is Answer.DONE else after


def counters(config: Config, world: World, n: int) -> Iterator[tuple[str, World, Row | None]]:
    """Reads of the counter: asked how far, and then read to there, or to what has come since. Without a row, the read
    is not over, or starts over as what it was to come to is gone."""
    broker, node = world.broker, world.nodes[n]
    asked = node.asked
    if asked is None:
        asked = control_rows(broker, to_high_watermark=not config.lacks(Removal.HIGH_WATERMARK))
        if asked is None:
            return
        if config.two_steps:
            yield "asks how far the control rows go", world.node(n, asked=asked), None
            return
    visible_now = control_rows(broker, to_high_watermark=False) or 0
    if asked > len(broker.control):
        yield "finds less than there was", world.node(n, asked=None), None
    for end in range(asked, visible_now + 1):
        yield "reads the control rows", world.node(n, asked=None), broker.control[end - 1]


def read_control_and_tails(config: Config, world: World, n: int) -> Steps:
    """The counter gives the epoch to take, each shard's last frame the number to go on from; a counter that lacks what
    the WAL knows of is lost."""
    wal = wal_as_of_now(world.broker, to_high_watermark=not config.lacks(Removal.TAILS_TO_HIGH_WATERMARK))
    if wal is None:
        return
    node = world.nodes[n]
    for what, after, row in counters(config, world, n):
        if row is None:
            yield f"node {n}: {what}", after
        elif row.epoch < highest_epoch(wal) and not config.lacks(Removal.CLAIM_ABOVE_TAILS):
            yield f"node {n}: {what}: epoch {row.epoch} is not the newest", confirmed_lost(world, after, n)
        else:
            epoch = node.epoch if config.lacks(Removal.CONTROL_AFTER_INIT) else row.epoch + 1
            numbers = node.numbers if config.lacks(Removal.TAILS_AFTER_INIT) else last_numbers(wal)
            after = after.node(n, at=At.COUNTER, epoch=epoch, numbers=numbers, produced=0)
            yield f"node {n}: {what} and tails, takes epoch {epoch}", after


def produce_counter_and_markers(config: Config, world: World, n: int) -> Steps:
    """The counter row and a marker for every shard, in one transaction."""
    node = world.nodes[n]
    shard = node.produced
    row = config.row(node, n) if shard == 0 else None
    request = Request(shard, Frame(node.epoch, Kind.MARKER, None, node.numbers[shard]), row)
    for answer, how, after in produce(world, n, request):
        if answer is Answer.DONE:
            at = At.COUNTER_END if shard + 1 == config.shards else At.COUNTER
            after = after.node(n, at=at, produced=shard + 1)
        else:
            after = after.node(n, at=after_unknown_counter(config), produced=0)
        yield f"node {n}: produces {'counter and ' if row else ''}marker {node.epoch} to shard {shard}{how}", after


def end_counter(config: Config, world: World, n: int) -> Steps:
    """Commits counter and markers. Only a plain yes is taken as one."""
    for answer, how, after in end_transaction(world, n):
        if answer is Answer.DONE:
            after = passed_counter(after, n)
        elif answer is not Answer.NONE:
            after = after.node(n, at=after_unknown_counter(config), produced=0)
        yield f"node {n}: EndTxn of epoch {world.nodes[n].epoch}{how}", after


def after_unknown_counter(config: Config) -> At:
    """Check, init, check."""
    return At.RECHECK if config.lacks(Removal.COUNTER_NOT_REWRITTEN) else to_check(config)


def to_check(config: Config) -> At:
    """Where a node goes that would initialise again."""
    return At.REINIT if config.lacks(Removal.CHECK_BEFORE_INIT) else At.CHECK


def passed_counter(world: World, n: int) -> World:
    """The node's counter and markers are committed: on to the gate."""
    return world.node(n, at=At.GATE, produced=0, numbers=tuple(number + 1 for number in world.nodes[n].numbers))


def pass_gate(config: Config, world: World, n: int) -> Steps:
    """A shard passes only at mark epoch = E. The worker's mark may stand at any committed prefix of its shard."""
    node = world.nodes[n]
    at_least = config.lacks(Removal.GATE_EXACT)
    marks = [_marks(log) for log in visible(world.broker)]
    passing = [
        {groups for epoch, groups in shard if epoch == node.epoch or (at_least and epoch > node.epoch)}
        for shard in marks
    ]
    unready = config.lacks(Removal.READY)
    at = At.ACTIVE if unready else At.READY
    for loaded in product(*passing):
        after = world.node(n, at=at, ready=unready, loaded=loaded, produced=0)
        yield f"node {n}: passes the gate, loads {_names(loaded)}", after
    if not at_least and any(epoch > node.epoch for shard in marks for epoch, _ in shard):
        yield f"node {n}: meets a larger mark: FENCED", idle(world, n)


def _marks(log: Log) -> set[tuple[int, frozenset[int]]]:
    """Every mark the worker may show: its epoch, and the groups a load at it finds. Older frames are skipped."""
    marks = set()
    epoch, groups = 0, frozenset[int]()
    for frame in log:
        if frame.epoch >= epoch:
            epoch = frame.epoch
            groups = groups if frame.group is None else groups | {frame.group}
            marks.add((epoch, groups))
    return marks


def produce_ready(config: Config, world: World, n: int) -> Steps:
    """One more group with the same producer, in one shard: its EndTxn proves that nobody has initialised since."""
    node = world.nodes[n]
    request = Request(READY_SHARD, Frame(node.epoch, Kind.READY, None, node.numbers[READY_SHARD]), None)
    for answer, how, after in produce(world, n, request):
        after = after.node(n, at=At.READY_END if answer is Answer.DONE else to_check(config))
        yield f"node {n}: produces READY to shard {READY_SHARD}{how}", after


def end_ready(config: Config, world: World, n: int) -> Steps:
    """Fenced, failed or unknown: nobody was told; check, init, check, and another one. Doubtful: active, but first that
    check."""
    for answer, how, after in end_transaction(world, n):
        if answer is Answer.DONE:
            after = passed_ready(after, n, At.ACTIVE)
        elif answer is Answer.DOUBTFUL:
            after = passed_ready(after, n, after_doubt(config))
        elif answer is Answer.LATE:
            after = after.node(n, at=At.READY_LATE)
        elif answer is not Answer.NONE:
            after = after.node(n, at=to_check(config))
        yield f"node {n}: EndTxn of READY{how}", after


def take_late_ready(config: Config, world: World, n: int) -> Steps:
    """An answer later than `fence_check_ms` says who was newest then, not who is now."""
    if config.lacks(Removal.READY_IN_TIME):
        yield f"node {n}: gets the late answer to READY: active", passed_ready(world, n, At.ACTIVE)
    else:
        yield f"node {n}: gets the answer to READY too late", world.node(n, at=to_check(config))


def look_for_ready(config: Config, world: World, n: int) -> Steps:
    """Behind check, init, check: reads the tails and commits another READY, whether the last one is there or not."""
    wal = wal_as_of_now(world.broker, to_high_watermark=not config.lacks(Removal.TAILS_TO_HIGH_WATERMARK))
    if wal is None:
        return
    epoch = world.nodes[n].epoch
    there = any(frame.kind is Kind.READY and frame.epoch == epoch for frame in wal[READY_SHARD])
    if there and config.lacks(Removal.READY_AGAIN):
        yield f"node {n}: finds its READY: active", world.node(n, at=At.ACTIVE, ready=True, numbers=last_numbers(wal))
    else:
        yield f"node {n}: reads the tails again", world.node(n, at=At.READY, numbers=last_numbers(wal))


def passed_ready(world: World, n: int, at: At) -> World:
    """READY is committed: the node is active."""
    before = world.nodes[n].numbers
    numbers = tuple(number + (shard == READY_SHARD) for shard, number in enumerate(before))
    return world.node(n, at=at, ready=True, produced=0, numbers=numbers)


def after_doubt(config: Config) -> At:
    """A commit that succeeded but met a transport error is followed by check, init, check."""
    return At.ACTIVE if config.lacks(Removal.CHECK_AFTER_DOUBT) else to_check(config)


def idle(world: World, n: int) -> World:
    """The node has nothing any more, but for the number of its activations (the nonce is never used twice)."""
    return world.node(n, **Node(activation=world.nodes[n].activation)._asdict())


def confirmed_lost(world: World, after: World, n: int) -> World:
    """After a counter that lacks what is known: read again behind a write, it has that, or has lost it."""
    rows = world.broker.control
    pending = world.broker.transaction and world.broker.transaction.row
    if pending or rows[-1].epoch >= max(highest_epoch(visible(world.broker)), world.nodes[n].epoch):
        return after
    return noticed(after, n)


def noticed(world: World, n: int) -> World:
    """The node says that the control rows have lost what was acknowledged, and goes on no more before a repair."""
    group = world.nodes[n].group
    after = idle(world, n).node(n, at=At.NOTICED)
    return after if group is None else after.said(group, Outcome.UNKNOWN)


def last_numbers(wal: tuple[Log, ...]) -> tuple[int, ...]:
    """Per shard the number of the last frame."""
    return tuple(log[-1].previous + 1 if log else 0 for log in wal)


def _names(loaded: tuple[frozenset[int], ...]) -> str:
    return " and ".join(f"groups {sorted(groups)}" if groups else "nothing" for groups in loaded)
