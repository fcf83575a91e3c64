"""Selectors: conditions over a message's headers in JMS' subset of SQL-92, compiled to closures.

docs/ROUTING.md has the grammar. The parser has one method for each level of precedence; each returns the compiled part,
its type if that is known, and its place in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from journal.errors import SelectorError
from journal.routing.selector.tokens import INTEGER_MAX, Token, TokenKind, tokens_of
from journal.routing.selector.values import (
    Condition,
    Lookup,
    Run,
    all_of,
    any_of,
    comparing,
    computing,
    is_null,
    like,
    like_pattern,
    negating,
    one_of,
    opposite,
    plus,
    truth,
)

NESTING_MAX = 50
"""The greatest depth to which parentheses, NOT and signs may be nested."""

_NUMBER, _TEXT, _CONDITION, _HEADER = "a number", "a text", "a condition", "a header"
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")


class Selector:
    """A selector, compiled. The empty one selects every message."""

    def __init__(self, text: str) -> None:
        """Compile a selector. Raises SelectorError, also for one that is nested too deep for this thread's stack."""
        self.text = text
        self.names: tuple[str, ...] = ()
        self._run: Condition = _every
        if text.strip():
            parser = _Parser(text)
            try:
                self._run = parser.whole()
            except RecursionError:
                raise SelectorError(text, 0, "too deep to be read here") from None
            self.names = tuple(dict.fromkeys(parser.names))

    def value(self, get: Lookup) -> bool | None:
        """The value of the condition for a message; None means unknown. `get` gives the message's headers."""
        return self._run(get)

    def selects(self, get: Lookup) -> bool:
        """Whether the condition is true for a message. Unknown counts as not true."""
        return self._run(get) is True


def _every(get: Lookup) -> bool | None:
    return True


class _SelectorPart(NamedTuple):
    """A part of a selector. `type` is one of the four types, or unknown for a header until a message is there."""

    run: Run
    type: str
    at: int
    name: str = ""


class _Parser:
    def __init__(self, text: str) -> None:
        self.names: list[str] = []
        self._text = text
        self._tokens = tokens_of(text)
        self._at = 0
        self._depth = 0

    def whole(self) -> Condition:
        part = self._or()
        if self._token.kind is not TokenKind.END:
            raise self._error("expected AND, OR or the end")
        return self._condition(part)

    # ---- conditions ------------------------------------------------------------------------------------------------

    def _or(self) -> _SelectorPart:
        parts = [self._and()]
        while self._took("OR"):
            parts.append(self._and())
        return self._joined(parts, any_of)

    def _and(self) -> _SelectorPart:
        parts = [self._not()]
        while self._took("AND"):
            parts.append(self._not())
        return self._joined(parts, all_of)

    def _joined(
        self, parts: Sequence[_SelectorPart], joining: Callable[[Sequence[Condition]], Condition]
    ) -> _SelectorPart:
        """All operands of one operator as one part. Nested parts would each need a place on Python's stack when they
        run."""
        if len(parts) == 1:
            return parts[0]
        return _SelectorPart(joining([self._condition(part) for part in parts]), _CONDITION, parts[0].at)

    def _not(self) -> _SelectorPart:
        at = self._token.at
        if not self._took("NOT"):
            return self._predicate()
        self._enter()
        part = self._not()
        self._depth -= 1
        return _SelectorPart(opposite(self._condition(part)), _CONDITION, at)

    def _predicate(self) -> _SelectorPart:
        left = self._sum()
        if self._token.kind is TokenKind.SIGN and self._token.value in _COMPARISONS:
            return self._comparison(left)
        if self._took("IS"):
            negative = self._took("NOT")
            self._expect("NULL")
            return self._made(is_null(self._header(left, "IS NULL").run), negative, left)
        negative = self._took("NOT")
        if self._took("BETWEEN"):
            return self._between(left, negative)
        if self._took("IN"):
            return self._in(left, negative)
        if self._took("LIKE"):
            return self._like(left, negative)
        if negative:
            raise self._error("expected BETWEEN, IN or LIKE")
        return left

    def _comparison(self, left: _SelectorPart) -> _SelectorPart:
        sign = str(self._next().value)
        right = self._sum()
        if sign not in ("=", "<>"):
            for part in (left, right):
                self._numeric(part, f"{sign} compares numbers")
        return _SelectorPart(comparing(sign, left.run, right.run), _CONDITION, left.at)

    def _between(self, left: _SelectorPart, negative: bool) -> _SelectorPart:
        low = self._sum()
        self._expect("AND")
        high = self._sum()
        for part in (left, low, high):
            self._numeric(part, "BETWEEN compares numbers")
        run = all_of((comparing(">=", left.run, low.run), comparing("<=", left.run, high.run)))
        return self._made(run, negative, left)

    def _in(self, left: _SelectorPart, negative: bool) -> _SelectorPart:
        self._header(left, "IN")
        self._expect("(")
        texts = [self._literal_text("a text of the list")]
        while self._took(","):
            texts.append(self._literal_text("a text of the list"))
        self._expect(")")
        return self._made(one_of(left.run, frozenset(texts)), negative, left)

    def _like(self, left: _SelectorPart, negative: bool) -> _SelectorPart:
        self._header(left, "LIKE")
        at = self._token.at
        pattern = self._literal_text("a pattern")
        escape = ""
        if self._took("ESCAPE"):
            escape_at = self._token.at
            escape = self._literal_text("an escape character")
            if len(escape) != 1:
                raise SelectorError(self._text, escape_at, "an escape character is one character")
        try:
            compiled = like_pattern(pattern, escape)
        except ValueError as error:
            raise SelectorError(self._text, at, str(error)) from None
        return self._made(like(left.run, compiled), negative, left)

    @staticmethod
    def _made(run: Condition, negative: bool, left: _SelectorPart) -> _SelectorPart:
        return _SelectorPart(opposite(run) if negative else run, _CONDITION, left.at)

    # ---- values ----------------------------------------------------------------------------------------------------

    def _sum(self) -> _SelectorPart:
        first, further = self._product(), list[tuple[str, _SelectorPart]]()
        while self._token.kind is TokenKind.SIGN and self._token.value in ("+", "-"):
            further.append((str(self._next().value), self._product()))
        return self._computed(first, further)

    def _product(self) -> _SelectorPart:
        first, further = self._signed(), list[tuple[str, _SelectorPart]]()
        while self._token.kind is TokenKind.SIGN and self._token.value in ("*", "/"):
            further.append((str(self._next().value), self._signed()))
        return self._computed(first, further)

    def _computed(self, first: _SelectorPart, further: Sequence[tuple[str, _SelectorPart]]) -> _SelectorPart:
        if not further:
            return first
        left = first
        for sign, right in further:
            for part in (left, right):
                self._numeric(part, f"{sign} computes with numbers")
            left = right
        steps = [(sign, part.run) for sign, part in further]
        return _SelectorPart(computing(first.run, steps), _NUMBER, first.at)

    def _signed(self) -> _SelectorPart:
        token = self._token
        if token.kind is not TokenKind.SIGN or token.value not in ("+", "-"):
            return self._primary()
        self._next()
        if token.value == "-" and self._token.kind is TokenKind.NUMBER:
            return self._number(self._next(), negative=True)
        self._enter()
        part = self._signed()
        self._depth -= 1
        self._numeric(part, f"{token.value} is a number's sign")
        return _SelectorPart(negating(part.run) if token.value == "-" else plus(part.run), _NUMBER, token.at)

    def _primary(self) -> _SelectorPart:
        token = self._token
        if self._took("("):
            self._enter()
            part = self._or()
            self._depth -= 1
            self._expect(")")
            return part._replace(name="", at=token.at)
        if token.kind is TokenKind.NUMBER:
            return self._number(self._next(), negative=False)
        if token.kind is TokenKind.TEXT:
            text = self._next().value
            return _SelectorPart(lambda get: text, _TEXT, token.at)
        if token.kind is TokenKind.WORD and token.value in ("TRUE", "FALSE"):
            constant = self._next().value == "TRUE"
            return _SelectorPart(lambda get: constant, _CONDITION, token.at)
        if token.kind is not TokenKind.NAME:
            raise self._error("expected a header, a literal, NOT, + or -, or (")
        name = str(self._next().value)
        self.names.append(name)
        return _SelectorPart(_reading(name), _HEADER, token.at, name)

    def _number(self, token: Token, *, negative: bool) -> _SelectorPart:
        value = token.value
        assert not isinstance(value, str)
        if negative:
            value = -value
        elif type(value) is int and value > INTEGER_MAX:
            raise SelectorError(self._text, token.at, "an integer over 64 bits")
        return _SelectorPart(lambda get: value, _NUMBER, token.at)

    # ---- types -----------------------------------------------------------------------------------------------------

    def _condition(self, part: _SelectorPart) -> Condition:
        if part.type in (_NUMBER, _TEXT):
            raise SelectorError(self._text, part.at, f"expected a condition, not {part.type}")
        return cast(Condition, part.run) if part.type == _CONDITION else truth(part.run)

    def _numeric(self, part: _SelectorPart, reason: str) -> None:
        if part.type in (_TEXT, _CONDITION):
            raise SelectorError(self._text, part.at, f"{reason}, this is {part.type}")

    def _header(self, part: _SelectorPart, word: str) -> _SelectorPart:
        if not part.name:
            raise SelectorError(self._text, part.at, f"{word} asks for a header's name before it")
        return part

    # ---- tokens ----------------------------------------------------------------------------------------------------

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _took(self, value: str) -> bool:
        token = self._tokens[self._at]
        if token.kind in (TokenKind.WORD, TokenKind.SIGN) and token.value == value:
            self._at += 1
            return True
        return False

    def _expect(self, value: str) -> None:
        if not self._took(value):
            raise self._error(f"expected {value}")

    def _literal_text(self, what: str) -> str:
        if self._token.kind is not TokenKind.TEXT:
            raise self._error(f"expected {what}, in single quotes")
        return str(self._next().value)

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise self._error(f"more than {NESTING_MAX} levels of parentheses, NOT and signs")

    def _error(self, reason: str) -> SelectorError:
        return SelectorError(self._text, self._token.at, reason)


def _reading(name: str) -> Run:
    """A header's value for a selector. Selectors cannot use bytes, so a header with bytes counts as missing."""

    def run(get: Lookup) -> object:
        value = get(name)
        return None if type(value) is bytes else value

    return run  # type: ignore[return-value]
