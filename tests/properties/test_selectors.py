"""Selectors, compiled, against a tree walk that shares no code: conditions are 0, 1/2 and 1, LIKE is tried by hand."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from journal.errors import SelectorError
from journal.routing.selector.selector import Selector
from journal.store.model import Value

Node = tuple[Any, ...]
FALSE, UNKNOWN, TRUE = 0.0, 0.5, 1.0
NAMES = ("a", "b", "$c_1", "d.e", "with space")

# ---- what there is -------------------------------------------------------------------------------------------------

texts = st.text("ab%_!'", max_size=5)
integers = st.one_of(st.integers(0, 5), st.sampled_from([2**31, 2**53 + 1, 2**63 - 1]))
reals = st.one_of(st.sampled_from([0.0, 0.5, 2.0, 1e300]), st.floats(0, 1e6))
names = st.sampled_from(NAMES).map(lambda name: ("name", name))
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.sampled_from([-(2**63), 2**63 - 1, 2**53 + 1]),
    st.floats(),
    texts,
    st.binary(max_size=2),
)
messages = st.fixed_dictionaries(dict.fromkeys(NAMES, values))

numbers = st.recursive(
    st.one_of(names, integers.map(lambda value: ("number", value)), reals.map(lambda value: ("number", value))),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["negative", "positive"]), inner),
        st.tuples(st.just("compute"), st.sampled_from("+-*/"), inner, inner),
    ),
    max_leaves=5,
)
comparable = st.one_of(
    numbers, texts.map(lambda text: ("text", text)), st.booleans().map(lambda value: ("constant", value))
)
patterns = st.lists(st.sampled_from(["a", "b", "%", "_", "!%", "!_", "!!", "'"]), max_size=5).map("".join)
predicates = st.one_of(
    names,
    st.booleans().map(lambda value: ("constant", value)),
    st.tuples(st.just("compare"), st.sampled_from(["=", "<>"]), comparable, comparable),
    st.tuples(st.just("compare"), st.sampled_from(["<", "<=", ">", ">="]), numbers, numbers),
    st.tuples(st.just("between"), st.booleans(), numbers, numbers, numbers),
    st.tuples(st.just("in"), st.booleans(), names, st.lists(texts, min_size=1, max_size=3)),
    st.tuples(st.just("like"), st.booleans(), names, patterns, st.just("!")),
    st.tuples(st.just("null"), st.booleans(), names),
)
conditions = st.recursive(
    predicates,
    lambda inner: st.one_of(st.tuples(st.just("not"), inner), st.tuples(st.sampled_from(["and", "or"]), inner, inner)),
    max_leaves=6,
)


# ---- how it is written ---------------------------------------------------------------------------------------------

OR, AND, NOT, COMPARE, SUM, PRODUCT, SIGN, PRIMARY = range(8)


def written(node: Node, level: int = OR) -> str:
    """With parentheses only where it needs them."""
    text, own = _plain(node)
    return text if own >= level else f"({text})"


def _plain(node: Node) -> tuple[str, int]:
    match node:
        case ("name", name):
            return (f'"{name}"' if " " in name else name), PRIMARY
        case ("number", value):
            return repr(value), PRIMARY
        case ("text", text):
            return _quoted(text), PRIMARY
        case ("constant", value):
            return ("True" if value else "fAlse"), PRIMARY
        case ("negative" | "positive" as sign, of):
            return ("-" if sign == "negative" else "+") + written(of, SIGN), SIGN
        case ("compute", sign, left, right):
            level = SUM if sign in "+-" else PRODUCT
            return f"{written(left, level)}{sign}{written(right, level + 1)}", level
        case ("compare", sign, left, right):
            return f"{written(left, SUM)} {sign}{written(right, SUM)}", COMPARE
        case ("between", negative, of, low, high):
            word = "NOT between" if negative else "BETWEEN"
            return f"{written(of, SUM)} {word} {written(low, SUM)} AND {written(high, SUM)}", COMPARE
        case ("in", negative, of, texts):
            inside = ", ".join(map(_quoted, texts))
            return f"{written(of)} {'not ' if negative else ''}IN({inside})", COMPARE
        case ("like", negative, of, pattern, escape):
            word = "NOT LIKE" if negative else "like"
            return f"{written(of)} {word} {_quoted(pattern)} ESCAPE {_quoted(escape)}", COMPARE
        case ("null", negative, of):
            return f"{written(of)} IS {'NOT ' if negative else ''}NULL", COMPARE
        case ("not", of):
            return f"NOT {written(of, NOT)}", NOT
        case ("and", left, right):
            return f"{written(left, AND)} AND {written(right, NOT)}", AND
        case ("or", left, right):
            return f"{written(left, OR)}\n or {written(right, AND)}", OR
    raise AssertionError(node)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# ---- what it means -------------------------------------------------------------------------------------------------


def meaning(node: Node, message: Mapping[str, Value | None]) -> float:
    match node:
        case ("name", _) | ("constant", _):
            value = computed(node, message)
            return (TRUE if value else FALSE) if isinstance(value, bool) else UNKNOWN
        case ("not", of):
            return 1 - meaning(of, message)
        case ("and", left, right):
            return min(meaning(left, message), meaning(right, message))
        case ("or", left, right):
            return max(meaning(left, message), meaning(right, message))
        case ("compare", sign, left, right):
            return compared(sign, computed(left, message), computed(right, message))
        case ("between", negative, of, low, high):
            both = ("and", ("compare", ">=", of, low), ("compare", "<=", of, high))
            return negated(negative, meaning(both, message))
        case ("null", negative, of):
            return negated(negative, TRUE if computed(of, message) is None else FALSE)
        case ("in", negative, of, texts):
            value = computed(of, message)
            return negated(negative, UNKNOWN if value is None else float(any(value == text for text in texts)))
        case ("like", negative, of, pattern, _):
            value = computed(of, message)
            if value is None:
                return UNKNOWN
            return negated(negative, float(isinstance(value, str) and alike(value, pattern)))
    raise AssertionError(node)


def negated(negative: bool, value: float) -> float:
    return 1 - value if negative else value


def kind(value: Value) -> str:
    return "number" if type(value) in (int, float) else type(value).__name__


def compared(sign: str, a: Value | None, b: Value | None) -> float:
    if a is None or b is None:
        return UNKNOWN
    if kind(a) != kind(b) or (kind(a) != "number" and sign not in ("=", "<>")):
        return FALSE
    if type(a) is not type(b):
        a, b = float(a), float(b)
    return float(eval(f"a {'==' if sign == '=' else '!=' if sign == '<>' else sign} b", {"a": a, "b": b}))


def computed(node: Node, message: Mapping[str, Value | None]) -> Value | None:
    match node:
        case ("name", name):
            return None if isinstance(message[name], bytes) else message[name]
        case ("number" | "text" | "constant", value):
            return value
        case ("negative" | "positive" as sign, of):
            value = computed(of, message)
            if value is None or kind(value) != "number":
                return None
            value = -value if sign == "negative" else value
            return ctypes.c_int64(value).value if type(value) is int else value
        case ("compute", sign, left, right):
            a, b = computed(left, message), computed(right, message)
            if a is None or b is None or {kind(a), kind(b)} != {"number"}:
                return None
            return of_integers(sign, a, b) if {type(a), type(b)} == {int} else of_reals(sign, float(a), float(b))
    raise AssertionError(node)


def of_integers(sign: str, a: int, b: int) -> int | None:
    if sign == "/":
        if b == 0:
            return None
        return ctypes.c_int64(_towards_zero(a, b)).value
    return ctypes.c_int64({"+": a + b, "-": a - b, "*": a * b}[sign]).value


def _towards_zero(a: int, b: int) -> int:
    down = a // b
    return down + 1 if down < 0 and down * b != a else down


def of_reals(sign: str, a: float, b: float) -> float:
    if sign == "/" and b == 0:
        return math.nan if a == 0 or a != a else math.inf * math.copysign(1, a) * math.copysign(1, b)
    return a / b if sign == "/" else {"+": a + b, "-": a - b, "*": a * b}[sign]


def alike(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "!":
        return text[:1] == pattern[1] and alike(text[1:], pattern[2:])
    if pattern[0] == "%":
        return any(alike(text[at:], pattern[1:]) for at in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and alike(text[1:], pattern[1:])


# ---- they are the same ---------------------------------------------------------------------------------------------


@given(conditions, messages)
@example(("compare", "=", ("name", "a"), ("negative", ("number", 2**63 - 1))), dict.fromkeys(NAMES, -(2**63) + 1))
def test_a_selector_means_what_the_tree_means(node: Node, message: Mapping[str, Value | None]) -> None:
    found = Selector(written(node)).value(message.get)
    assert {None: UNKNOWN, True: TRUE, False: FALSE}[found] == meaning(node, message)


@given(
    st.lists(st.sampled_from(["a", "b", "\n", "%", "%", "_", "!%", "!_", "!!"]), max_size=10).map("".join),
    st.text("ab%_!\n", max_size=10),
)
def test_a_text_is_like_a_pattern_if_trying_everything_says_so(pattern: str, text: str) -> None:
    selector = Selector(f"a LIKE '{pattern}' ESCAPE '!'")
    assert selector.value({"a": text}.get) is alike(text, pattern)


@given(st.text("ab ()'\"=<>!%_.0179eExXLNORTAIK+-*/,\n", max_size=40))
def test_any_text_is_a_selector_or_an_error_with_a_place_in_it(text: str) -> None:
    try:
        value = Selector(text).value({}.get)
    except SelectorError as error:
        value, at = None, error.position
    else:
        at = 0
    assert value in (None, True, False)
    assert 0 <= at <= len(text)


@pytest.mark.parametrize("sign", ["+", "-", "*", "/"])
@given(a=st.integers(-(2**63), 2**63 - 1), b=st.integers(-(2**63), 2**63 - 1))
def test_integers_overflow_as_they_do_in_java(sign: str, a: int, b: int) -> None:
    expected = of_integers(sign, a, b)
    selector = Selector(f"a {sign} b = c")
    values = {"a": a, "b": b, "c": expected}
    assert selector.value(values.get) is (None if expected is None else True)
