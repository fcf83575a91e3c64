"""Rows as flights.csv has them: a flight in one line, and the file itself."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path

HEADING = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,"
    "carrier,flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour"
)


def row(
    day: int = 1, scheduled: int = 900, *, delay: int | None = 0, minutes: int | None = 120, flight: int = 1545
) -> list[str]:
    """A flight in January: `scheduled` at a minute of the day, late by `delay` (None: cancelled), landing after
    `minutes` (None: nobody knows)."""
    departed = None if delay is None else scheduled + delay
    landed = None if departed is None or minutes is None else departed + minutes
    fields: list[object] = [2013, 1, day, _hhmm(departed), _hhmm(scheduled), "NA" if delay is None else delay]
    fields += [_hhmm(landed), 1200, "NA", "UA", flight, "N14228", "EWR", "IAH", "NA", 1400]
    return [str(field) for field in [*fields, scheduled // 60, scheduled % 60, "2013-01-01T10:00:00Z"]]


def write_archive(path: Path, rows: Iterable[list[str]]) -> Path:
    """`path` as an archive with these rows."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", "".join(f"{line}\n" for line in [HEADING, *(",".join(row) for row in rows)]))
    return path


def _hhmm(minute: int | None) -> str:
    if minute is None:
        return "NA"
    minute %= 24 * 60
    return str(minute // 60 * 100 + minute % 60)
