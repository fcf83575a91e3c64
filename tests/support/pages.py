"""The blocks of a document, and a shell that runs them as a reader does: in order, in an empty directory.

- A block `sh` is given to one bash, which has the variables and the background jobs of the blocks before it. It must
  succeed.
- A block `python` or `toml` whose first line is `# NAME` is saved as the file NAME.
- A block `text` is what the block `sh` before it prints. In it `…` stands for any text, and a line that is only `…` for
  any lines. A number of four digits or more (an id, a port) and a number of seconds stand for any other one. What bash
  tells of a job that was killed, and lines of a log (what a command waits for), are left out.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from journal.embedded.cluster import EmbeddedKafka
from journal.embedded.distribution import cache_directory
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
BLOCK_TIMEOUT_S = 240.0

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"\d{4,}|\d+(?:\.\d+)? s\b")
_LEFT_OUT = re.compile(r"^(?:.*: line \d+: +\d+ Killed |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ ).*\n", re.MULTILINE)
_FILE_NAME = re.compile(r"# ([\w-]+\.\w+)\n")


class Block(NamedTuple):
    """A block of a document."""

    language: str
    text: str
    line: int


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(found[1], found[2], text.count("\n", 0, found.start()) + 1) for found in _BLOCK.finditer(text)]


def file_name(block: Block) -> str:
    """The name of the file that a block is saved as."""
    found = _FILE_NAME.match(block.text)
    assert found, f"line {block.line}: the first line of a program is `# NAME`"
    return found[1]


def is_shown(shown: str, printed: str) -> bool:
    """Whether a block `text` shows what was printed."""
    parts = []
    for line in shown.splitlines(keepends=True):
        if line.strip() == "…":
            parts.append("(?:.*\n)*?")
        else:
            parts.append(".*".join(map(re.escape, _NUMBER.sub("0", line).split("…"))))
    return re.fullmatch("".join(parts), _NUMBER.sub("0", printed)) is not None


class Shell:
    """A bash whose directory is empty at first. Nothing of the user's own settings or Kafka is seen in it."""

    def __init__(self, work: Path, env: Mapping[str, str]) -> None:
        self.directory = work / "directory"
        self.directory.mkdir()
        self._work = work
        self._data = work / "data"
        self._output = work / "output"
        self._blocks = 0
        homes = {f"XDG_{name}_HOME": str(work / name.lower()) for name in ("CACHE", "STATE")}
        clean = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_JOURNAL_")}
        with self._output.open("wb") as output:
            self._bash = subprocess.Popen(
                ["bash", "--norc", "--noprofile", "-e"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=self.directory,
                env=clean
                | homes
                | {
                    "XDG_DATA_HOME": str(self._data),
                    "KAFKA_JOURNAL_CACHE": str(cache_directory()),
                    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                }
                | env,
                text=True,
                start_new_session=True,
            )

    def run(self, commands: str) -> str:
        """What the commands print. They must succeed."""
        self._blocks += 1
        script, printed, done = (self._work / f"{self._blocks}.{part}" for part in ("sh", "printed", "done"))
        script.write_text(commands, encoding="utf-8")
        assert self._bash.stdin is not None
        self._bash.stdin.write(f". {script} < /dev/null > {printed} 2>&1; touch {done}\n")
        self._bash.stdin.flush()
        wait_until(
            lambda: done.exists() or self._bash.poll() is not None,
            lambda: f"it takes too long:\n{commands}\n{self._told(printed)}",
            BLOCK_TIMEOUT_S,
        )
        assert done.exists(), f"it failed:\n{commands}\n{self._told(printed)}"
        return _LEFT_OUT.sub("", printed.read_text(encoding="utf-8"))

    def _told(self, printed: Path) -> str:
        files = [printed, self._output, *sorted(self.directory.glob("*.log"))]
        return "\n".join(f"--- {file.name}\n{file.read_text(encoding='utf-8')}" for file in files if file.exists())

    def close(self) -> None:
        """Kill what the blocks have left, and the embedded Kafka."""
        with suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()
        EmbeddedKafka(self._data / "kafka-journal" / "kafka").stop()


@contextmanager
def shell(work: Path, env: Mapping[str, str] | None = None) -> Iterator[Shell]:
    """A shell in an empty directory below `work`, with these variables."""
    work.mkdir()
    opened = Shell(work, env or {})
    try:
        yield opened
    finally:
        opened.close()


def run_page(page: Path, work: Path, env: Mapping[str, str] | None = None) -> None:
    """Run all blocks of a document, and compare what they print with what it shows."""
    with shell(work, env) as bash:
        printed = ""
        for block in blocks_of(page):
            if block.language == "sh":
                printed = bash.run(block.text)
            elif block.language == "text":
                assert is_shown(block.text, printed), (
                    f"{page.name}:{block.line} shows\n{block.text}\nand not\n{printed}"
                )
            else:
                (bash.directory / file_name(block)).write_text(block.text, encoding="utf-8")
