"""X/Open's result codes (Distributed Transaction Processing: The XA Specification, section 4), as `XidError.code`."""

from __future__ import annotations

from enum import IntEnum


class XaCode(IntEnum):
    """X/Open's codes. Below 0: the call was wrong and changed nothing. Above 0: the outcome of the branch."""

    RBROLLBACK = 100  # the branch can only be rolled back
    RBTIMEOUT = 106  # it can only be rolled back, because its time was over
    HEURCOM = 7  # it was committed by hand or by policy
    HEURRB = 6  # it was rolled back by hand or by policy
    NOTA = -4  # no such xid
    INVAL = -5  # parts of the wrong size
    PROTO = -6  # the branch's state does not allow the call
    DUPID = -8  # the xid is in use


ROLLBACKS = frozenset({XaCode.RBROLLBACK, XaCode.RBTIMEOUT})
"""Codes that answer a prepare or commit if the branch was rolled back and forgotten. The caller must not call again."""
