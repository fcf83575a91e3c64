"""Runs the program of a child process: the `main` of the module that the first argument names, with the others."""

from __future__ import annotations

import sys
from importlib import import_module

if __name__ == "__main__":
    _, name, *arguments = sys.argv
    import_module(f"tests.support.children.{name}").main(*arguments)
