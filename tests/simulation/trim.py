"""An operator who trims the WAL, in a process of its own."""

from __future__ import annotations

from journal.errors import CorruptionError, OperatingError, TrimError
from journal.topics.control_reading import read_control
from journal.upkeep.trim import Trimming
from tests.simulation.history import History
from tests.simulation.scheduler import Process
from tests.simulation.setting import JOURNAL, REQUEST_S, Setting, settings_of


class Trim:
    """One trim of all shards, without an archive."""

    def __init__(self, setting: Setting, history: History) -> None:
        self.process = Process("trim")
        self._setting = setting
        self._history = history
        setting.scheduler.spawn(self.process, self._main)

    def _main(self) -> None:
        setting = self._setting
        kafka, clock = setting.kafka("trim"), setting.scheduler.now
        try:
            rows = read_control(kafka, JOURNAL, clock, REQUEST_S)
            trimming = Trimming(
                kafka,
                settings_of(setting.shards),
                rows,
                _told,
                without_archive=True,
                clock=clock,
            )
            plan = trimming.plan("operator", setting.wall_ms("trim")())
            self._history.trims += any(each.row is not None for each in plan)
            trimming.delete(plan)
        except (OperatingError, TrimError):
            return
        except CorruptionError as error:
            if not self._history.takes(error, clock()):
                raise


def _told(step: str, done: int, total: int) -> None: ...
