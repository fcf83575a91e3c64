"""What a report says: times to recover, from acknowledgements and faults; what was wrong, and what was left out."""

from __future__ import annotations

from tests.chaos.history import RoleChange
from tests.chaos.report import Injection, Report, longest_gap, percentile

EVERY_SECOND = [float(second) for second in range(10)]


def test_the_longest_gap_counts_from_the_fault_on() -> None:
    times = [0.0, 1.0, 6.0, 7.0]
    assert longest_gap(times, 4.0, 10.0) == 2.0
    assert longest_gap(times, 0.5, 10.0) == 5.0


def test_before_the_first_acknowledgement_the_gap_begins_with_the_fault() -> None:
    assert longest_gap([9.0, 10.0], 2.0, 20.0) == 7.0


def test_a_gap_behind_the_end_is_another_faults() -> None:
    assert longest_gap([0.0, 1.0, 2.0, 9.0], 0.0, 1.5) == 1.0


def test_a_gap_that_a_fault_begins_is_not_that_of_the_fault_before() -> None:
    times = [*EVERY_SECOND, 9.9, 40.0]
    assert longest_gap(times, 5.0, 10.0) == 1.0
    assert longest_gap(times, 10.0, 41.0) == 30.0


def test_without_acknowledgements_there_is_no_gap() -> None:
    assert longest_gap([], 0.0, 1.0) == 0.0
    assert percentile([], 0.5) == 0.0


def test_percentiles_are_times_that_were_measured() -> None:
    assert [percentile(EVERY_SECOND, share) for share in (0.5, 0.99, 1.0)] == [5.0, 9.0, 9.0]


def test_a_report_counts_seconds_from_the_runs_begin_and_recovery_fault_by_fault() -> None:
    report = Report("run", 1, injections=[Injection("kill", "node-1", 1.0), Injection("stop", "worker-1", 5.0)])
    report.take_times(100.0, [104.5, 99.0, 100.5, 100.6, 107.0], [RoleChange(101.0, "node-1", "active", 1)])
    assert report.rates == [2, 0, 0, 0, 1, 0, 0, 1]
    assert [injection.silent_s for injection in report.injections] == [3.5, 2.0]
    assert report.recovery_s() == {"p50": 3.5, "p99": 3.5, "max": 3.5}
    assert report.to_json()["roles"] == [{"t": 1.0, "node": "node-1", "role": "active", "epoch": 1}]


def test_a_run_that_ended_before_its_first_fault_has_a_report() -> None:
    report = Report("run", 1)
    report.take_times(100.0, [], [])
    report.take_times(100.0, [101.5], [])
    assert report.rates == [0, 1]
    assert report.recovery_s() == {"p50": 0.0, "p99": 0.0, "max": 0.0}


def test_a_process_that_ended_by_itself_is_wrong_and_named() -> None:
    report = Report("run", 1)
    assert report.wrong == []
    assert report.summary().endswith("nothing was found wrong")
    report.ended_by_themselves.append("worker-1 ended with 1 after pause of node-2")
    assert len(report.wrong) == 1
    assert "FOUND ended by itself: worker-1 ended with 1 after pause of node-2" in report.summary()
    assert "nothing was found wrong" not in report.summary()


def test_faults_that_were_not_injected_are_named() -> None:
    planned = ["kill", "stop", "pause"]
    report = Report("run", 1, injections=[Injection("kill", "node-1", 1.0)], planned=planned)
    report.lacks["network"] = "network namespaces need root"
    assert "no faults of the network on this machine: network namespaces need root" in report.summary()
    assert "no time for 2 of 3 kinds of faults: stop, pause" in report.summary()
    told = report.to_json()
    assert told["never_injected"] == ["stop", "pause"]
    assert told["lacks"] == {"network": "network namespaces need root"}
    report.injections += [Injection("stop", "node-1", 2.0), Injection("pause", "node-1", 3.0)]
    assert "no time" not in report.summary()
