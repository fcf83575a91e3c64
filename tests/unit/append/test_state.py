"""The states of a journal: every pair of them."""

from __future__ import annotations

import itertools

import pytest

from journal.append.state import JournalState, refusal, require_transition, valid_transition
from journal.errors import StateError

ALLOWED = {
    ("created", "started"),
    ("created", "failed"),
    ("created", "closed"),
    ("started", "loading"),
    ("started", "failed"),
    ("started", "closed"),
    ("loading", "active"),
    ("loading", "started"),
    ("loading", "fenced"),
    ("loading", "failed"),
    ("loading", "closed"),
    ("active", "fenced"),
    ("active", "failed"),
    ("active", "closed"),
    ("fenced", "closed"),
    ("failed", "closed"),
}


@pytest.mark.parametrize(("now", "then"), list(itertools.product(JournalState, JournalState)))
def test_a_journal_takes_the_transitions_of_the_table_and_no_others(now, then):
    allowed = (now.value, then.value) in ALLOWED
    assert valid_transition(now, then) is allowed
    if allowed:
        assert require_transition(now, then) is then
    else:
        with pytest.raises(StateError, match=f"{now.value} cannot become {then.value}"):
            require_transition(now, then)


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (JournalState.CREATED, "the journal is created: start or activate it first"),
        (JournalState.STARTED, "the journal is started: activate it first"),
        (JournalState.FENCED, "the journal is fenced"),
    ],
)
def test_a_journal_that_is_not_active_yet_says_what_to_call(state, says):
    assert str(refusal(state, closed=False)) == says
