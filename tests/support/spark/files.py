"""Files of a Spark job's place, without a Spark."""

from __future__ import annotations

from collections.abc import Iterable

from loaders.spark.stored.files import Files


class FilesInMemory(Files):
    """By name below the path."""

    def __init__(self, *names: str) -> None:
        self._root = "/tables"
        self.texts = dict.fromkeys(names, "")

    def exists(self, name: str) -> bool:
        return name in self.texts or any(self._below(name))

    def names(self, directory: str) -> list[str]:
        return sorted({each.split("/")[0] for each in self._below(directory)})

    def text(self, name: str) -> str:
        return self.texts[name]

    def write_new(self, name: str, text: str) -> None:
        assert name not in self.texts
        self.texts[name] = text

    def delete(self, name: str) -> None:
        del self.texts[name]

    def _below(self, directory: str) -> Iterable[str]:
        start = f"{directory}/" if directory else ""
        return (name.removeprefix(start) for name in self.texts if name.startswith(start))
