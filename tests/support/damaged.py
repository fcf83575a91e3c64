"""A copy whose disk has not kept what was written."""

from __future__ import annotations

from pathlib import Path


def flip(directory: Path) -> None:
    """Bits in the middle of the largest file of rows."""
    file = max(directory.glob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)
