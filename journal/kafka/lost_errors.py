"""Errors that confluent-kafka loses: its C code gives Python another exception, or an object that is no exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class LostError(Exception):
    """A fatal error of librdkafka whose exception was lost on its way to Python. The producer can still tell the
    error."""


def with_lost_errors(call: Callable[[], T]) -> T:
    """Make a call and return its result. Raises what the call raises, but LostError in place of an error that was
    lost."""
    try:
        return call()
    except SystemError as error:
        raise LostError from error
    except BaseException:
        raise
    except:  # noqa: E722  # a bare except alone sees a KafkaError
        # Nothing may be raised in this block: Python would take the KafkaError for the new exception's context.
        pass
    raise LostError
