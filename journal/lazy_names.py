"""A package's public names, each imported when a program first asks for it.

`import journal` stays quick and needs nothing but the standard library, although `journal.Journal` needs Kafka's client
and `journal.MessageStore` needs RocksDB. The names are those that the package's `__init__.py` imports under
`if TYPE_CHECKING`, so that type checkers, editors and this module read one list.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path


def lazy_names(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package; `file` is its `__init__.py`."""

    @cache
    def modules() -> dict[str, str]:
        import ast  # the import costs time, so it waits until a program asks for the name

        statements = ast.walk(ast.parse(Path(file).read_text(encoding="utf-8")))
        imports = [each for each in statements if isinstance(each, ast.ImportFrom) and each.module]
        return {name.asname: str(each.module) for each in imports for name in each.names if name.asname == name.name}

    def get(name: str) -> object:
        if name == "__all__":
            return sorted(modules())
        if name.startswith("__") or name not in modules():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(__import__(modules()[name], fromlist=[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *modules()})
