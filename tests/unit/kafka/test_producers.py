"""Errors that confluent-kafka's C code loses."""

from __future__ import annotations

import ctypes
import sys

import pytest
from confluent_kafka import KafkaError, KafkaException

from journal.kafka.lost_errors import LostError, with_lost_errors


def raise_what_is_no_exception() -> None:
    error = KafkaError(KafkaError._FENCED, "fenced", True)
    api = ctypes.pythonapi
    for kept in (KafkaError, error):
        api.Py_IncRef(ctypes.py_object(kept))
    api.PyErr_Restore.argtypes = [ctypes.py_object, ctypes.py_object, ctypes.c_void_p]
    api.PyErr_Restore(KafkaError, error, None)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python 3.12 and newer raise nothing but exceptions")
def test_a_fatal_error_that_is_no_exception_is_a_lost_one() -> None:
    with pytest.raises(LostError):
        with_lost_errors(raise_what_is_no_exception)


def test_a_system_error_is_a_lost_one() -> None:
    def lose() -> None:
        raise SystemError("returned a result with an exception set")

    with pytest.raises(LostError):
        with_lost_errors(lose)


def test_errors_and_results_that_are_not_lost_pass_unchanged() -> None:
    def refuse() -> None:
        raise KafkaException(KafkaError(KafkaError._FENCED))

    with pytest.raises(KafkaException):
        with_lost_errors(refuse)
    assert with_lost_errors(lambda: 7) == 7
