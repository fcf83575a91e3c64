"""Replaying into a journal: everything once, whatever happens between two runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from journal.cli.main import app
from journal.errors import ConfigError, LockedError, RecordExistsError, RowError, TransactionPreparedError
from journal.limits import Limits
from journal.local.journal import LocalJournal
from journal.v1.journal_pb2 import Replay, ReplayProgress
from journal.v1.store_pb2 import Binding, Message, Origin, RecordKind, UpdateKind
from journal.wire.ids import make_id, sequence_of
from loaders.replay import Replaying, ReplayResult
from loaders.replay_state import ReplaySource, ReplayTarget, Selected, require_other_journal
from tests.support.in_process import Collected
from tests.support.spark.replay import UntilInDoubt

LIMITS = Limits(queue_operations_max=40, transaction_buffer_operations_max=10)
IN_DOUBT = 2**63 - 1
XID = b"an xid"
NOW_MS = 1_700_000_000_000.0
PLAIN = 100


class Cut(Exception):
    """A run is killed."""


def source(*, end: int = 1000, issued: int = 0, remapped: bool = False) -> ReplaySource:
    return ReplaySource(b"s" * 16, "orders", b"a" * 16, "/archive", b"f" * 32, "{}", {0: end, 1: end}, issued, remapped)


def add(record_id: int, group: int, data: bytes = b"data", *, kind: int = PLAIN, tx: int = 0) -> Selected:
    return row(group, "ADD", record_id, kind, data, tx=tx)


def update(record_id: int, group: int, *, kind: int = PLAIN, subject: int = 0, tx: int = 0) -> Selected:
    return row(group, "UPDATE", record_id, kind, b"update", subject=subject, tx=tx)


def delete(record_id: int, group: int) -> Selected:
    return row(group, "DELETE", record_id)


def row(
    group: int, type_: str, record_id: int = 0, kind: int = 0, data: bytes = b"", *, subject: int = 0, tx: int = 0
) -> Selected:
    in_doubt = group == IN_DOUBT
    return Selected(group, record_id % 2, group % 1000, type_, record_id, kind, data, False, subject, tx, in_doubt)


@contextmanager
def opened(directory: Path, limits: Limits = LIMITS) -> Iterator[tuple[LocalJournal, ReplayTarget]]:
    target = ReplayTarget()
    with LocalJournal(directory, shards=3, limits=limits) as journal:
        journal.activate(target)
        yield journal, target


def replayed(
    directory: Path,
    operations: Iterable[Selected],
    of: ReplaySource,
    *,
    limits: Limits = LIMITS,
    cut: Callable[[], None] = lambda: None,
) -> ReplayResult:
    """One run, with what Spark would give it: operations behind what was reached. `cut` is called behind a PREPARE."""
    with opened(directory, limits) as (journal, target):
        into = UntilInDoubt(journal, cut)
        replaying = Replaying(into, limits, of, target, operator="me", now_ms=lambda: NOW_MS)
        reached, kept = replaying.progress.reached, replaying.progress.kept
        left = (
            each for each in operations if (each.tx not in kept if each.in_doubt else each.offset > reached[each.shard])
        )
        return replaying.run(left)


def cut_behind(operations: Iterable[Selected], group: int) -> Iterator[Selected]:
    for each in operations:
        if each.group > group:
            raise Cut
        yield each


def state(directory: Path) -> Collected:
    loaded = Collected()
    with LocalJournal(directory, shards=3, limits=LIMITS) as journal:
        journal.activate(loaded)
    return loaded


def records(directory: Path) -> dict[int, tuple[int, bytes]]:
    found = state(directory).records
    return {record_id: each for record_id, each in found.items() if each[0] != RecordKind.REPLAY}


def change(directory: Path, what: Callable[[LocalJournal], object]) -> None:
    with opened(directory) as (journal, _):
        what(journal)
        journal.flush().wait()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "target"


def ids(count: int) -> list[int]:
    return [make_id(number, number % 7) for number in range(1, count + 1)]


def test_everything_is_there_once_however_often_it_is_replayed(directory: Path) -> None:
    operations = [add(record_id, group) for group, record_id in enumerate(ids(100), 1)]
    operations += [update(ids(100)[0], 101), delete(ids(100)[1], 102)]
    assert replayed(directory, operations, source()).operations == 102
    first = state(directory)
    assert set(ids(100)) - {ids(100)[1]} == set(records(directory))
    assert first.updates[ids(100)[0]] == [(PLAIN, b"update", 0)]
    again = replayed(directory, operations, source())
    assert (again.operations, again.before) == (0, 102)
    assert state(directory).records == first.records
    assert state(directory).updates == first.updates


def test_a_replay_that_is_cut_off_goes_on_and_brings_nothing_back_that_was_deleted_meanwhile(directory: Path) -> None:
    operations = [add(record_id, group) for group, record_id in enumerate(ids(100), 1)]
    operations += [update(record_id, 101) for record_id in ids(5)]
    with pytest.raises(Cut):
        replayed(directory, cut_behind(operations, 55), source())
    there = set(records(directory))
    assert there == set(ids(50))
    consumed = {ids(5)[0], ids(5)[2]}
    change(directory, lambda journal: [journal.delete(record_id) for record_id in consumed])
    result = replayed(directory, operations, source())
    assert set(records(directory)) == set(ids(100)) - consumed
    assert (result.before, result.operations, result.left_out) == (50, 53, 2)


def test_a_group_of_the_source_is_never_torn(directory: Path) -> None:
    operations = [add(record_id, number // 7) for number, record_id in enumerate(ids(70))]
    with pytest.raises(Cut):
        replayed(directory, cut_behind(operations, 6), source())
    assert len(records(directory)) % 7 == 0
    replayed(directory, operations, source())
    assert set(records(directory)) == set(ids(70))


def test_a_group_that_settled_more_than_a_group_takes_is_one_transaction(directory: Path) -> None:
    operations = [add(record_id, 1) for record_id in ids(200)] + [add(make_id(900, 0), 2)]
    result = replayed(directory, operations, source())
    assert set(records(directory)) == {*ids(200), make_id(900, 0)}
    assert (result.operations, result.groups) == (201, 2)
    assert replayed(directory, operations, source()).before == 201


def test_a_replay_says_what_it_is_of_and_how_far_it_is(directory: Path) -> None:
    replayed(directory, [add(ids(1)[0], 5)], source(end=77))
    found = state(directory)
    for shard in (0, 1):
        record_id = source().record_id(shard)
        said = Replay.FromString(found.records[record_id][1])
        assert (said.source, said.archive, said.path, said.operator) == (b"s" * 16, b"a" * 16, "/archive", "me")
        assert (said.shard, said.shards, said.timestamp) == (shard, 2, NOW_MS)
        ((kind, data, _),) = found.updates[record_id]
        assert kind == UpdateKind.REPLAYED
        assert ReplayProgress.FromString(data).offset == 77


def test_another_filter_is_another_replay(directory: Path) -> None:
    one, other = source(), ReplaySource(b"s" * 16, "orders", b"a" * 16, "/archive", b"g" * 32, "{}", {0: 9}, 0, False)
    assert {one.record_id(0), one.record_id(1)}.isdisjoint({other.record_id(0)})
    replayed(directory, [add(2, 1)], one)
    assert replayed(directory, [add(4, 1)], other).operations == 1


def test_the_target_issues_no_id_that_the_source_has_issued(directory: Path) -> None:
    replayed(directory, [add(make_id(3, 0), 1)], source(issued=250_000))
    with opened(directory) as (journal, _):
        assert sequence_of(journal.new_id()) > 250_000


def test_a_record_that_the_target_has_of_its_own_is_refused_and_remapping_ids_mends_it(directory: Path) -> None:
    change(directory, lambda journal: journal.add(ids(1)[0], 7, b"its own"))
    with pytest.raises(RecordExistsError, match="--remap-ids"):
        replayed(directory, [add(ids(1)[0], 1)], source())
    replayed(directory, [add(ids(1)[0], 1)], source(remapped=True))
    assert sorted(records(directory).values()) == [(7, b"its own"), (PLAIN, b"data")]


def test_remapped_ids_keep_their_virtual_shard_and_are_the_same_in_every_run_and_in_data(directory: Path) -> None:
    queue, message, chunk, binding = make_id(5, 9), make_id(9_000, 9), make_id(8_999, 9), make_id(6, 9)
    body = Message(address="a", chunks=[chunk], origin=Origin(message=make_id(4, 1))).SerializeToString()
    first = [
        add(queue, 1, kind=RecordKind.QUEUE),
        add(binding, 2, Binding(queue=queue).SerializeToString(), kind=RecordKind.BINDING),
        add(chunk, 3, kind=RecordKind.CHUNK),
        add(message, 3, body, kind=RecordKind.MESSAGE),
    ]
    second = [update(message, 4, kind=UpdateKind.ROUTE, subject=queue)]
    replayed(directory, first, source(end=3, remapped=True))
    replayed(directory, first + second, source(remapped=True))
    loaded = state(directory)
    by_kind = {kind: (record_id, data) for record_id, (kind, data) in loaded.records.items()}
    new_queue, new_message = by_kind[RecordKind.QUEUE][0], by_kind[RecordKind.MESSAGE][0]
    assert new_queue != queue
    assert {each[0] % 1024 for kind, each in by_kind.items() if kind != RecordKind.REPLAY} == {9}
    assert Binding.FromString(by_kind[RecordKind.BINDING][1]).queue == new_queue
    assert list(Message.FromString(by_kind[RecordKind.MESSAGE][1]).chunks) == [by_kind[RecordKind.CHUNK][0]]
    assert loaded.updates[new_message] == [(UpdateKind.ROUTE, b"update", new_queue)]


def test_ids_are_not_remapped_in_what_is_no_message_store(directory: Path) -> None:
    with pytest.raises(RowError, match="not a message store"):
        replayed(directory, [add(4, 1, b"\xff\xff", kind=RecordKind.MESSAGE)], source(remapped=True))


def in_doubt(tx: int, *operations: Selected) -> list[Selected]:
    return [*operations, row(IN_DOUBT, "PREPARE", data=XID, tx=tx), row(IN_DOUBT, "PREPARE", tx=tx)]


@pytest.mark.parametrize("remapped", [False, True])
def test_what_is_in_doubt_stays_so_once(directory: Path, remapped: bool) -> None:
    operations = [add(2, 1), *in_doubt(7, add(4, IN_DOUBT, tx=7), update(2, IN_DOUBT, tx=7))]
    assert replayed(directory, operations, source(remapped=remapped)).in_doubt == [7]
    data, staged = state(directory).in_doubt[7]
    assert (data, len(staged)) == (XID, 2)
    change(directory, lambda journal: journal.rollback(7))
    assert replayed(directory, operations, source(remapped=remapped)).in_doubt == []
    assert state(directory).in_doubt == {}
    assert len(records(directory)) == 1


@pytest.mark.parametrize("limits", [LIMITS, Limits(queue_operations_max=40, transaction_buffer_operations_max=1)])
def test_cut_off_once_a_transaction_is_in_doubt_it_is_not_so_again_when_it_was_settled_meanwhile(
    directory: Path, limits: Limits
) -> None:
    operations = [add(2, 1), *in_doubt(7, add(4, IN_DOUBT, tx=7), update(2, IN_DOUBT, tx=7))]
    operations += in_doubt(8, add(6, IN_DOUBT, tx=8))

    def cut() -> None:
        raise Cut

    with pytest.raises(Cut):
        replayed(directory, operations, source(), limits=limits, cut=cut)
    assert set(state(directory).in_doubt) == {7}
    change(directory, lambda journal: journal.commit(7))
    assert replayed(directory, operations, source(), limits=limits).in_doubt == [8]
    assert set(state(directory).in_doubt) == {8}
    assert set(records(directory)) == {2, 4}


def test_what_another_replay_has_put_in_doubt_is_remembered(directory: Path) -> None:
    operations = in_doubt(7, add(4, IN_DOUBT, tx=7))
    other = ReplaySource(b"s" * 16, "orders", b"a" * 16, "/archive", b"g" * 32, "{}", {0: 9, 1: 9}, 0, False)
    assert replayed(directory, operations, other).in_doubt == [7]
    assert replayed(directory, operations, source()).in_doubt == [7]
    change(directory, lambda journal: journal.rollback(7))
    assert replayed(directory, operations, source()).in_doubt == []
    assert state(directory).in_doubt == {}


def test_what_another_replay_has_left_out_of_a_transaction_in_doubt_is_not_lost(directory: Path) -> None:
    """One that touches two queues, say, which are replayed one by one: the part of the other is there in the end."""
    one, both = add(4, IN_DOUBT, tx=7), [add(4, IN_DOUBT, tx=7), add(6, IN_DOUBT, tx=7)]
    other = ReplaySource(b"s" * 16, "orders", b"a" * 16, "/archive", b"g" * 32, "{}", {0: 9, 1: 9}, 0, False)
    replayed(directory, in_doubt(7, one), other)
    with pytest.raises(TransactionPreparedError, match="without 1 operations that this one would prepare: settle it"):
        replayed(directory, in_doubt(7, *both), source())
    change(directory, lambda journal: journal.rollback(7))
    assert replayed(directory, in_doubt(7, *both), source()).in_doubt == [7]
    assert len(state(directory).in_doubt[7][1]) == 2
    part = ReplaySource(b"s" * 16, "orders", b"a" * 16, "/archive", b"h" * 32, "{}", {0: 9, 1: 9}, 0, False)
    assert replayed(directory, in_doubt(7, one), part).in_doubt == [7], "all of it is there already"


def test_what_the_source_did_to_a_record_that_is_in_doubt_in_the_target_waits_for_it(directory: Path) -> None:
    replayed(directory, in_doubt(7, add(4, IN_DOUBT, tx=7)), source(end=1))
    for refused in ([update(4, 5)], [delete(4, 5)], in_doubt(8, update(4, IN_DOUBT, tx=8))):
        with pytest.raises(LockedError, match=r"record 4 is added by transaction 7.*tx list"):
            replayed(directory, refused, source(end=1))
    change(directory, lambda journal: journal.commit(7))
    assert replayed(directory, [delete(4, 5)], source(end=5)).left_out == 0
    assert records(directory) == {}


def test_another_transaction_is_not_taken_for_the_replayed_one_of_its_number(directory: Path) -> None:
    change(directory, lambda journal: journal.prepare(7, b"another"))
    with pytest.raises(TransactionPreparedError, match="settle it first"):
        replayed(directory, in_doubt(7, add(4, IN_DOUBT, tx=7)), source())


def test_what_a_transaction_in_doubt_holds_is_refused_with_what_mends_it(directory: Path) -> None:
    replayed(directory, [add(2, 1), *in_doubt(7, update(2, IN_DOUBT, tx=7))], source(end=1))
    with pytest.raises(LockedError, match="tx list"):
        replayed(directory, [delete(2, 5)], source())
    change(directory, lambda journal: journal.commit(7))
    replayed(directory, [delete(2, 5)], source())
    assert records(directory) == {}


def test_an_archive_of_the_target_itself_is_refused() -> None:
    with pytest.raises(ConfigError, match="target itself"):
        require_other_journal(source(), b"s" * 16)


@pytest.mark.parametrize(
    "option",
    [
        ("--until", "yesterday"),
        ("--ids", "7-3"),
        ("--ids", "all"),
        ("--epochs", "1-"),
        ("--days", "2024-13-01"),
        ("--days", "2024-05-02/2024-05-01"),
        ("--skip", "12"),
    ],
)
def test_a_filter_that_means_nothing_is_a_usage_error(option: tuple[str, str]) -> None:
    result = CliRunner().invoke(app, ["spark", "replay", "-j", "target", "--from", "/archive", *option])
    assert result.exit_code == 2
    assert f"{option[0]} {option[1]}" in result.output
