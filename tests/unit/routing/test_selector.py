"""Selectors: what JMS' examples mean, and where an error is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap

import pytest

from journal.errors import SelectorError
from journal.routing.selector.selector import NESTING_MAX, Selector
from journal.routing.selector.tokens import SELECTOR_CHARACTERS_MAX

MESSAGE = {"age": 17, "phone": "12993", "word": "lose", "underscored": "_foo", "Country": "UK", "weight": 2500.0}
MESSAGE |= {"JMSType": "car", "color": "blue", "paid": True, "late": False, "raw": b"x", "kafka.topic": "t"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", True),
        ("  \n", True),
        ("JMSType = 'car' AND color = 'blue' AND weight >= 2500", True),
        ("age BETWEEN 15 AND 19", True),
        ("age NOT BETWEEN 15 AND 19", False),
        ("Country IN ('UK', 'US', 'France')", True),
        ("Country NOT IN ('UK', 'US', 'France')", False),
        ("Peru IN ('UK')", None),
        ("phone LIKE '12%3'", True),
        ("phone LIKE '12_3'", False),
        ("word LIKE 'l_se'", True),
        (r"underscored LIKE '\_%' ESCAPE '\'", True),
        (r"word LIKE '\_%' ESCAPE '\'", False),
        ("phone NOT LIKE '12%3'", False),
        ("prop_name IS NULL", True),
        ("age IS NOT NULL", True),
        ("raw IS NULL", True),
        ("paid", True),
        ("NOT late", True),
        ("color", None),
        ("nothing = 1 OR paid", True),
        ("nothing = 1 AND paid", None),
        ("nothing = 1 AND late", False),
        ("age = '17'", False),
        ("age <> '17'", False),
        ("age = 17.0", True),
        ("9007199254740993 = 9007199254740992.0", True),
        ("age / 2 = 8", True),
        ("-age / 2 = -8", True),
        ("age / 0 = 1", None),
        ("age / 0.0 > 1e300", True),
        ("age + color = 1", None),
        ("color = 'it''s'", False),
        ("1 + 2 * 3 = 7 and (1 + 2) * 3 = 9", True),
        ("paid or late and late", True),
        ("not late and late", False),
        ("0x1F = 31 and 017 = 15 and 17L = 17 and 7. = 7e0 and .5F = 0.5", True),
        ("kafka.topic = 't' and \"kafka.topic\" = 't'", True),
        ("TrUe = paid", True),
    ],
)
def test_a_selector_is_true_false_or_unknown_for_a_message(text: str, value: bool | None) -> None:
    selector = Selector(text)
    assert selector.value(MESSAGE.get) is value
    assert selector.selects(MESSAGE.get) is (value is True)


@pytest.mark.parametrize(
    ("text", "position", "says"),
    [
        ("delay > AND paid", 8, "expected a header"),
        ("a = ", 4, "its end"),
        ("a > 'x'", 4, "compares numbers"),
        ("TRUE < a", 0, "compares numbers"),
        ("a b", 2, "expected AND, OR or the end"),
        ("a = b = c", 6, "expected AND, OR or the end"),
        ("(a = 1", 6, "expected )"),
        ("a LIKE b", 7, "in single quotes"),
        ("a LIKE 'x' ESCAPE '!!'", 18, "one character"),
        ("a LIKE 'x!y' ESCAPE '!'", 7, "escape character"),
        ("1 LIKE 'x'", 0, "asks for a header"),
        ("(a) IS NULL", 0, "asks for a header"),
        ("a IN (1)", 6, "in single quotes"),
        ("a IN ('x' 'y')", 10, "expected )"),
        ("a IS 5", 5, "expected NULL"),
        ("a NOT 5", 6, "expected BETWEEN, IN or LIKE"),
        ("a BETWEEN 1 OR 2", 12, "expected AND"),
        ("a = 'x", 4, "does not end"),
        ('"a = 1', 0, "does not end"),
        ("a ? b", 2, "no sign"),
        ("a = 09", 4, "octal"),
        ("a = 9223372036854775808", 4, "64 bits"),
        ("a = 1x", 5, "does not go on"),
        ("1.5L = a", 0, "not an integer"),
        ("a = 1 AND 5", 10, "expected a condition"),
        ("'x'", 0, "expected a condition"),
        ("-TRUE = a", 1, "sign"),
        ("a + 'x' = 1", 4, "computes with numbers"),
        ("LIKE = 1", 0, "expected a header"),
        ("a = 1 -- x y", 11, "expected AND, OR or the end"),
    ],
)
def test_an_error_says_what_is_wrong_and_where(text: str, position: int, says: str) -> None:
    with pytest.raises(SelectorError, match=re.escape(says)) as caught:
        Selector(text)
    assert caught.value.position == position


def test_the_smallest_integer_can_be_written() -> None:
    assert Selector("a = -9223372036854775808").selects({"a": -(2**63)}.get)


@pytest.mark.parametrize("sign", ["(", "NOT ", "- +"])
def test_the_nesting_of_a_selector_has_a_bound(sign: str) -> None:
    with pytest.raises(SelectorError, match="levels"):
        Selector(sign * (NESTING_MAX + 1) + "a")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("OR".join([" a=1 "] * 1400), False),
        ("OR".join([" b=1 "] * 1400), None),
        ("OR".join([" a=1 "] * 1399 + [" a=0"]), True),
        ("AND".join([" a=0 "] * 1200), True),
        ("AND".join([" b=0 "] * 1199 + [" a=1"]), False),
        ("+".join(["a"] * 4000) + "=0", True),
        ("-".join(["1"] * 4000) + "=-3998", True),
        ("*".join(["1"] * 4000) + "=1", True),
        (f"a IN ({','.join(['0'.join(chr(39) * 2)] * 2000)})", False),
        ("(" * NESTING_MAX + "a*1+1=1 AND a=0 OR b" + ")" * NESTING_MAX, True),
        ("NOT a BETWEEN 1 AND " + "-(1+" * (NESTING_MAX // 2 - 1) + "1" + ")" * (NESTING_MAX // 2 - 1), True),
    ],
)
def test_a_selector_that_is_read_is_evaluated_however_many_terms_it_has(text: str, value: bool | None) -> None:
    assert Selector(text).value({"a": 0}.get) is value


def test_a_selector_for_which_the_stack_has_no_room_is_refused_as_one() -> None:
    def read(frames: int) -> None:
        if frames:
            read(frames - 1)
        else:
            Selector("(" * NESTING_MAX + "a" + ")" * NESTING_MAX)

    with pytest.raises(SelectorError, match="too deep"):
        read(sys.getrecursionlimit() - 300)


def test_the_length_of_a_selector_has_a_bound() -> None:
    with pytest.raises(SelectorError, match="longer"):
        Selector("a" * (SELECTOR_CHARACTERS_MAX + 1))


def test_a_selector_tells_the_headers_that_it_names() -> None:
    assert Selector("a = 1 OR b.c LIKE 'x' AND \"d e\" = a").names == ("a", "b.c", "d e")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("%error%timeout%retry%", "error " * 20_000 + "timeout " * 20_000),
        ("%a" * 20 + "%b", "a" * 30_000),
        ("%_a" * 20 + "%b%", "a" * 30_000),
        ("%" + "a" * 5000, "a" * 10_000_000 + "b"),
        ("%" + "a" * 5000 + "b%", "a" * 10_000_000),
    ],
    ids=["words", "letters", "any one", "a long end", "a long word"],
)
def test_a_text_that_is_almost_like_a_pattern_is_soon_told(pattern: str, text: str) -> None:
    assert (
        told_by(
            """
        from journal.routing.selector.selector import Selector
        pattern, text = read()
        answer = Selector(f"a LIKE '{pattern}'").value({"a": text}.get)
    """,
            [pattern, text],
        )
        is False
    )


def test_a_header_name_that_almost_fits_a_pattern_is_soon_told() -> None:
    assert (
        told_by(
            """
        from journal.patterns import NamePatterns
        pattern, name = read()
        answer = name in NamePatterns([pattern])
    """,
            ["*a" * 20 + "*b", "a" * 30_000],
        )
        is False
    )


def told_by(code: str, given: list[str]) -> bool:
    """By a process of its own: a regular expression that does not end lets nothing else run."""
    read = "import json, sys\nread = lambda: json.load(sys.stdin)\n"
    started = [sys.executable, "-c", read + textwrap.dedent(code) + "print(json.dumps(answer))"]
    done = subprocess.run(started, input=json.dumps(given), check=True, timeout=20, capture_output=True, text=True)
    return bool(json.loads(done.stdout))
