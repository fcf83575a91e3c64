"""A command that ends, with all that it has started, once nobody holds this process' standard input open any more.

Arguments: COMMAND..., in the first process of a group; it exits as the command does.
"""

from __future__ import annotations

import os
import subprocess

from tests.support.spark.jobs import begin, die_with_parent


def main(*command: str) -> None:
    begin(die_with_parent)
    code = subprocess.call(command, stdin=subprocess.DEVNULL)
    os._exit(code if code >= 0 else 1)  # Python cannot end while standard input is read
