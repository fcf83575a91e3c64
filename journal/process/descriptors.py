"""Descriptors: how many files and connections a process may have open, looked at before it begins with anything.

Without them Kafka's client waits for connections until its time is up, and says no more than that.
"""

from __future__ import annotations

import resource
from contextlib import suppress

from journal.errors import DescriptorsError


def require_descriptors(needed: int, what: str) -> None:
    """See that this process may have so many open: its limit is raised as far as it may be by itself.

    Raises DescriptorsError with the number.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _is_enough(soft, needed):
        return
    if _is_enough(hard, needed):
        with suppress(OSError, ValueError):  # a sandbox may refuse: then it is too few
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
            return
    raise DescriptorsError(
        f"{what} needs {needed} open files and connections, and may have {soft}: allow it more (ulimit -n {needed}, or "
        f"LimitNOFILE={needed} of its service)"
    )


def _is_enough(limit: int, needed: int) -> bool:
    return limit == resource.RLIM_INFINITY or limit >= needed
