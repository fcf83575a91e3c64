"""What a page shows is compared with what is printed: ids and seconds may differ, and `…` leaves text and lines out."""

from __future__ import annotations

import pytest

from tests.support.pages import is_shown


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("ids 3566, 2.5 s ago\n", "ids 104590, 12 s ago\n"),
        ("in …, to b\n", "in epoch 7, to b\n"),
        ("…\nlast\n", "one\ntwo\nlast\n"),
        ("…\nlast\n", "last\n"),
    ],
)
def test_what_differs_by_id_or_time_or_is_left_out_is_shown(shown: str, printed: str) -> None:
    assert is_shown(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"), [("1 message\n", "2 messages\n"), ("one\n", "one\ntwo\n"), ("a.c\n", "abc\n")]
)
def test_other_text_and_further_lines_are_not_shown(shown: str, printed: str) -> None:
    assert not is_shown(shown, printed)
