"""A command that ends, with all that it has started, once nobody holds this process' standard input open any more.

`python -m tests.support.spark_process COMMAND...`, as the first process of a group; exits as the command does.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.spark_jobs import begin, die_with_parent


def main() -> None:
    begin(die_with_parent)
    code = subprocess.call(sys.argv[1:], stdin=subprocess.DEVNULL)
    os._exit(code if code >= 0 else 1)  # Python cannot end while standard input is read


if __name__ == "__main__":
    main()
