"""Where Spark's JVM writes: to standard error or to a file, never among a command's data."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from journal.errors import MissingExtraError

_STDOUT, _STDERR = 1, 2


@contextmanager
def starting_spark(*, quiet: bool) -> Iterator[None]:
    """A JVM that is started meanwhile writes all it has to say, for as long as it lives, to standard error.

    If `quiet`, to nowhere; what it says of a start that fails (MissingExtraError) is shown.
    """
    with tempfile.TemporaryFile() as kept:
        sys.stdout.flush()
        sys.stderr.flush()
        stdout, stderr = os.dup(_STDOUT), os.dup(_STDERR)
        os.dup2(kept.fileno() if quiet else stderr, _STDOUT)
        os.dup2(kept.fileno() if quiet else stderr, _STDERR)
        try:
            yield
        except MissingExtraError:
            kept.seek(0)
            os.write(stderr, kept.read())
            raise
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(stdout, _STDOUT)
            os.dup2(stderr, _STDERR)
            os.close(stdout)
            os.close(stderr)
