"""What an active node does: write groups, recover by check, init, check, and find out what became of its last group."""

from __future__ import annotations

from enum import StrEnum

from .activation import (
    after_doubt,
    confirmed_lost,
    counters,
    idle,
    look_for_ready,
    passed_counter,
    to_check,
)
from .coordinator import highest_epoch, visible, wal_as_of_now
from .removals import Removal
from .requests import Answer, end_transaction, init, produce
from .state import At, Config, Frame, Kind, Log, Node, Outcome, Request, Row, Steps, World


def take_group(config: Config, world: World, n: int) -> Steps:
    """Groups one after the other. With nothing to write, a heartbeat finds out that somebody else has initialised."""
    for group in range(n * config.groups, (n + 1) * config.groups):
        if world.outcomes[group] is Outcome.WAITING:
            taken = world.said(group, Outcome.IN_HAND).node(n, group=group, produced=0)
            yield from produce_group(config, taken, n)
            return
    if world.broker.newest != n:
        yield f"node {n}: heartbeat -> fenced", world.node(n, at=to_check(config))


def produce_group(config: Config, world: World, n: int) -> Steps:
    """The group's frame of one shard after the other; a resend carries the old numbers."""
    node = world.nodes[n]
    shard = node.produced
    request = Request(shard, Frame(node.epoch, Kind.GROUP, node.group, node.numbers[shard]), None)
    for answer, how, after in produce(world, n, request):
        if answer is Answer.DONE:
            at = At.GROUP_END if shard + 1 == config.shards else At.GROUP
            after = after.node(n, at=at, produced=shard + 1)
        else:
            after = group_in_doubt(config, after, n, answer)
        yield f"node {n}: produces group {node.group} of epoch {node.epoch} to shard {shard}{how}", after


def end_group(config: Config, world: World, n: int) -> Steps:
    """Commits the group. Done is said only when it is known, and neither fenced nor a time-out says anything."""
    for answer, how, after in end_transaction(world, n):
        if answer is Answer.DONE:
            after = group_done(after, n, At.ACTIVE)
        elif answer in (Answer.DOUBTFUL, Answer.LATE):
            after = group_done(after, n, after_doubt(config))
        elif answer is not Answer.NONE:
            after = group_in_doubt(config, after, n, answer)
        yield f"node {n}: EndTxn of group {world.nodes[n].group}{how}", after


def group_done(world: World, n: int, at: At) -> World:
    """Acknowledges the group in hand."""
    node = world.nodes[n]
    assert node.group is not None
    numbers = tuple(number + 1 for number in node.numbers)
    after = world.node(n, at=at, group=None, numbers=numbers, produced=0, found=False)
    return after.said(node.group, Outcome.DONE)


def group_in_doubt(config: Config, world: World, n: int, answer: Answer) -> World:
    """Neither done nor failed: check, init, check, and read back."""
    group = world.nodes[n].group
    assert group is not None
    if answer is Answer.FENCED and config.lacks(Removal.FENCED_IS_NOT_FAILED):
        return idle(world, n).said(group, Outcome.FAILED)
    if answer is Answer.UNKNOWN and config.lacks(Removal.UNKNOWN_IS_NOT_FAILED):
        return world.said(group, Outcome.FAILED).node(n, at=to_check(config), group=None, produced=0)
    return world.node(n, at=to_check(config), produced=0)


# ---- check, init, check ------------------------------------------------------------------------------------


class Finding(StrEnum):
    """What a check finds."""

    OWN = "own"
    NEWER = "newer"
    OLDER = "older"


def finding(config: Config, node: Node, n: int, row: Row) -> Finding:
    """Own only by epoch and nonce: another activation may have taken the same epoch, under the same name."""
    mine = config.row(node, n)
    if config.lacks(Removal.NONCE_BESIDE_EPOCH):
        own = row.epoch == mine.epoch
    elif config.lacks(Removal.NONCE_BESIDE_NAME):
        own = row.name == mine.name
    else:
        own = row == mine
    if own:
        return Finding.OWN
    return Finding.OLDER if row.epoch < node.epoch else Finding.NEWER


def check_before_init(config: Config, world: World, n: int) -> Steps:
    """Courtesy: a node that a successor has replaced does not disturb it."""
    node = world.nodes[n]
    for how, after, row in counters(config, world, n):
        if row is None:
            yield f"node {n}: {how}", after
            continue
        what = finding(config, node, n, row)
        label = f"node {n}: {how} before init: epoch {row.epoch}, {what}"
        if what is Finding.NEWER:
            yield f"{label}: FENCED", fenced(after, n)
            continue
        found = config.lacks(Removal.READ_BACK_AFTER_INIT) and _is_written(visible(world.broker), node.group)
        asked = node.asked if config.lacks(Removal.END_AFTER_INIT) else None
        yield label, after.node(n, at=At.REINIT, found=found, asked=asked)


def init_again(config: Config, world: World, n: int) -> Steps:
    """Settles the node's own last transaction, whatever became of it. This may fence a successor."""
    unchecked = config.lacks(Removal.CHECK_AFTER_INIT) and world.nodes[n].loaded is not None
    for answer, how, after in init(world, n):
        at = At.READ_BACK if unchecked else At.RECHECK
        yield f"node {n}: init again{how}", after.node(n, at=at if answer is Answer.DONE else to_check(config))


def check_after_init(config: Config, world: World, n: int) -> Steps:
    """Safety: nothing is written before the counter, read after that init up to the high watermark, is seen as own."""
    node = world.nodes[n]
    for how, after, row in counters(config, world, n):
        if row is None:
            yield f"node {n}: {how}", after
            continue
        what = finding(config, node, n, row)
        label = f"node {n}: {how} after init: epoch {row.epoch}, {what}"
        if what is Finding.NEWER:
            yield f"{label}: FENCED", fenced(after, n)
        elif what is Finding.OWN:
            yield label, passed_counter(after, n) if node.loaded is None else after.node(n, at=At.READ_BACK)
        elif node.loaded is None:
            again = config.lacks(Removal.TAILS_AGAIN) or config.lacks(Removal.COUNTER_NOT_REWRITTEN)
            yield f"{label}: nothing was written", after.node(n, at=At.COUNTER if again else At.READ)
        else:
            yield label, confirmed_lost(world, after, n)


def read_back(config: Config, world: World, n: int) -> Steps:
    """Reads the committed WAL to the end of every shard; what is missing is resent, in the same epoch. Nobody was told
    that a node is active which has not had READY confirmed: another one is committed.

    A newer marker is seen there also where the counter has lost the row that goes with it."""
    wal = wal_as_of_now(world.broker, to_high_watermark=not config.lacks(Removal.READ_BACK_TO_HIGH_WATERMARK))
    if wal is None:
        return
    node = world.nodes[n]
    if highest_epoch(wal) > node.epoch and not config.lacks(Removal.NEWER_MARKER):
        yield f"node {n}: reads a newer marker: FENCED", fenced(world, n)
        return
    if not node.ready:
        yield from look_for_ready(config, world, n)
        return
    group = node.group
    if group is None:
        yield f"node {n}: goes on", world.node(n, at=At.ACTIVE)
        return
    written = _is_written(wal, group)
    if config.lacks(Removal.READ_BACK):
        written = False
    if config.lacks(Removal.READ_BACK_AFTER_INIT):
        written = world.nodes[n].found
    if written:
        yield f"node {n}: finds group {group} written: done", group_done(world, n, At.ACTIVE)
    else:
        yield f"node {n}: takes group {group} for missing", world.node(n, at=At.GROUP, found=False)


def _is_written(wal: tuple[Log, ...], group: int | None) -> bool:
    return group is not None and all(any(frame.group == group for frame in log) for log in wal)


# ---- stepping down -----------------------------------------------------------------------------------------


def fenced(world: World, n: int) -> World:
    """The fenced node sends nothing more; a group in hand is still to be settled by reading."""
    return world.node(n, at=At.FENCED, produced=0) if world.nodes[n].group is not None else idle(world, n)


def settle_fenced(config: Config, world: World, n: int) -> Steps:
    """Reads each shard up to the first newer marker: found is done, markers everywhere are failed, else unknown."""
    node = world.nodes[n]
    group = node.group
    assert group is not None
    wal = visible(world.broker)
    logs = [_up_to_newer_marker(log, node.epoch) for log in wal]
    stopped = [len(log) < len(whole) for log, whole in zip(logs, wal, strict=True)]
    if any(frame.group == group for log in logs for frame in log):
        yield f"node {n}: finds group {group} before the newer marker: done", idle(world, n).said(group, Outcome.DONE)
    elif all(stopped) or (any(stopped) and config.lacks(Removal.EVERY_MARKER)):
        yield f"node {n}: finds the newer marker, no group {group}: failed", idle(world, n).said(group, Outcome.FAILED)
    else:
        yield f"node {n}: its deadline passes: group {group} unknown", idle(world, n).said(group, Outcome.UNKNOWN)


def wait_for_repair(config: Config, world: World, n: int) -> Steps:
    """Nothing more of its own will."""
    yield from ()


def _up_to_newer_marker(log: Log, epoch: int) -> Log:
    for place, frame in enumerate(log):
        if frame.kind is Kind.MARKER and frame.epoch > epoch:
            return log[:place]
    return log


def lapse(config: Config, world: World, n: int) -> Steps:
    """Its membership lapses by its own clock, or its replica shows a newer mark: it hands out nothing more."""
    node = world.nodes[n]
    if not world.faults.lapses or not node.is_active:
        return
    after = fenced(world.spend("lapses"), n)
    if node.group is not None and config.lacks(Removal.LAPSED_IS_NOT_FAILED):
        after = idle(after, n).said(node.group, Outcome.FAILED)
    yield f"node {n}: steps down, its membership has lapsed", after


def crash(config: Config, world: World, n: int) -> Steps:
    """The process is gone, and may start again. Nobody hears what became of the group in hand."""
    node = world.nodes[n]
    if not world.faults.crashes or node.at is At.IDLE:
        return
    after = idle(world.spend("crashes"), n)
    yield f"node {n}: crashes", after if node.group is None else after.said(node.group, Outcome.UNKNOWN)
