"""Whether an append that was interrupted has appended nothing. (Appends are refused in `intake` and `acceptance`.)

An append that is interrupted (Ctrl-C, for example) while it waits for room has appended nothing: its intake marks the
exception. One that is interrupted anywhere else may be in the journal.
"""

from __future__ import annotations

from journal.errors import JournalError

_MARK = "journal_appended_nothing"
"""The name of the attribute that marks an exception which has interrupted a wait for room."""


def mark_refusal(error: BaseException, refused: bool = True) -> None:
    """Note on an exception that nothing was appended; or with `refused` false, that nobody can tell any more."""
    vars(error)[_MARK] = refused


def is_refusal(error: BaseException) -> bool:
    """Whether nothing was appended. If not, nobody can tell."""
    return isinstance(error, JournalError) or vars(error).get(_MARK, False)
