"""The number of files and connections that a process may have open, which is checked before it begins.

A Kafka client that gets no descriptor waits for connections until its time is up, and does not say why.
"""

from __future__ import annotations

import resource
from contextlib import suppress

from journal.errors import DescriptorsError


def require_descriptors(needed: int, what: str) -> None:
    """Check that this process may have so many files and connections open, and raise its limit if that is allowed.

    Raises DescriptorsError with the number that it needs.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _is_enough(soft, needed):
        return
    if _is_enough(hard, needed):
        with suppress(OSError, ValueError):  # a sandbox may refuse, and then the limit is too low
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
            return
    raise DescriptorsError(
        f"{what} needs {needed} open files and connections, and may have {soft}: allow it more (ulimit -n {needed}, or "
        f"LimitNOFILE={needed} of its service)"
    )


def _is_enough(limit: int, needed: int) -> bool:
    return limit == resource.RLIM_INFINITY or limit >= needed
