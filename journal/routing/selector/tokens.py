"""The tokens of a selector with their positions: literals, identifiers, keywords and signs, as docs/ROUTING.md defines
them."""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from journal.errors import SelectorError

SELECTOR_CHARACTERS_MAX = 10_000
INTEGER_MAX = 2**63 - 1
WORDS = frozenset(["NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"])


class TokenKind(Enum):
    """The kind of a token."""

    NUMBER = "a number"
    TEXT = "a text"
    NAME = "a header's name"
    WORD = "a keyword"
    SIGN = "a sign"
    END = "the end"


class Token(NamedTuple):
    """A token. `value` is a number, a text or name without its quotes, a keyword in capitals, or a sign."""

    kind: TokenKind
    value: int | float | str
    at: int


_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<hex>0[xX][0-9a-fA-F]+)[lL]?
    |(?P<number>(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?)(?P<suffix>[lLfFdD]?)
    |'(?P<text>(?:[^']|'')*)'
    |"(?P<quoted>[^"]+)"
    |(?P<name>[^\W\d$][\w$.]*|\$[\w$.]*)
    |(?P<sign><>|<=|>=|[=<>()+\-*/,])""",
    re.VERBOSE,
)


def tokens_of(text: str) -> list[Token]:
    """The tokens of a selector; the last one is the end. Raises SelectorError."""
    if len(text) > SELECTOR_CHARACTERS_MAX:
        raise SelectorError(text, SELECTOR_CHARACTERS_MAX, f"longer than {SELECTOR_CHARACTERS_MAX} characters")
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            quote = text[at] in "'\""
            raise SelectorError(text, at, "this quote does not end" if quote else "no sign of a selector")
        if found.lastgroup != "space":
            tokens.append(_token(text, found, at))
            number_ends = tokens[-1].kind is TokenKind.NUMBER and found.end() < len(text)
            if number_ends and re.match(r"[\w$.]", text[found.end()]):
                raise SelectorError(text, found.end(), "a number does not go on like this")
        at = found.end()
    tokens.append(Token(TokenKind.END, "", len(text)))
    return tokens


def _token(text: str, found: re.Match[str], at: int) -> Token:
    if found["hex"] is not None:
        return Token(TokenKind.NUMBER, _integer(text, found["hex"], 16, at), at)
    if found["number"] is not None:
        return Token(TokenKind.NUMBER, _number(text, found["number"], found["suffix"], at), at)
    if found["text"] is not None:
        return Token(TokenKind.TEXT, found["text"].replace("''", "'"), at)
    if found["quoted"] is not None:
        return Token(TokenKind.NAME, found["quoted"], at)
    if found["sign"] is not None:
        return Token(TokenKind.SIGN, found["sign"], at)
    name = found["name"]
    if name.upper() in WORDS:
        return Token(TokenKind.WORD, name.upper(), at)
    return Token(TokenKind.NAME, name, at)


def _number(text: str, digits: str, suffix: str, at: int) -> int | float:
    """A number as Java reads it: octal after a leading 0; a double if it has a point, an exponent, F or D."""
    approximate = any(sign in digits for sign in ".eE") or (bool(suffix) and suffix in "fFdD")
    if not approximate:
        return _integer(text, digits, 8 if len(digits) > 1 and digits[0] == "0" else 10, at)
    if suffix and suffix in "lL":
        raise SelectorError(text, at, "a number with a point or exponent is not an integer: L is for those")
    return float(digits)


def _integer(text: str, digits: str, base: int, at: int) -> int:
    """An integer. The largest value plus one is accepted, because it is the smallest integer when a minus stands in
    front."""
    try:
        value = int(digits, base)
    except ValueError:
        raise SelectorError(text, at, f"{digits} begins with 0 and is not octal") from None
    if value > INTEGER_MAX + 1:
        raise SelectorError(text, at, "an integer over 64 bits")
    return value
