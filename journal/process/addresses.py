"""Addresses of brokers: how they are written, and whether somebody listens at them."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

_ADDRESS = re.compile(r"(?:[A-Za-z_]+://)?(\[[0-9A-Fa-f:.%]+\]|[^\s:,/\[\]]+):(\d{1,5})")
_PORT_MAX = 65_535
_CONNECT_S = 1.0
_RETRY_S = 0.1


class Address(NamedTuple):
    """A broker's address."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_addresses(text: str) -> list[Address]:
    """Addresses from text, separated by commas. Raises ValueError, which names the part that is none."""
    return [_parse(part) for part in text.split(",")]


def _parse(part: str) -> Address:
    found = _ADDRESS.fullmatch(part)
    if found is None or not 0 < int(found[2]) <= _PORT_MAX:
        raise ValueError(f"{part!r} is not an address: expected host:port[,host:port], such as 127.0.0.1:9092")
    return Address(found[1], int(found[2]))


def refusals(addresses: Sequence[Address], within_s: float) -> list[str]:
    """Why no address can be connected, one reason for each; empty if one can be, or if it is not known in time.

    A refused address is tried again until the time is up, because a broker there may be starting.
    """
    until = time.monotonic() + within_s
    tries = [_Try(address, until) for address in addresses]
    ended = threading.Condition()
    for each in tries:
        # a name server may take longer than `within_s`, and nothing ends a look-up: the process must not wait for it
        threading.Thread(target=each.run, args=(ended,), name="kafka-journal-address", daemon=True).start()
    with ended:
        ended.wait_for(lambda: any(t.connected for t in tries) or all(t.over for t in tries), within_s + _RETRY_S)
    if any(each.connected or not each.refusal for each in tries):
        return []
    return [f"{each.address}: {each.refusal}" for each in tries]


class _Try:
    """Tries to connect to one address, in a thread of its own."""

    def __init__(self, address: Address, until: float) -> None:
        self.address = address
        self.connected = False
        self.refusal = ""
        """Why the last try failed; empty if it timed out, which says nothing about a distant broker."""
        self.over = False
        self._until = until

    def run(self, ended: threading.Condition) -> None:
        while not self.over:
            self._connect()
            self.over = self.over or self.connected or time.monotonic() + _RETRY_S >= self._until
            if not self.over:
                time.sleep(_RETRY_S)
        with ended:
            ended.notify_all()

    def _connect(self) -> None:
        try:
            socket.create_connection((self.address.host.strip("[]"), self.address.port), _CONNECT_S).close()
            self.connected = True
        except TimeoutError:
            self.refusal = ""
        except socket.gaierror as error:
            self.refusal = f"the name is not known ({error.strerror})"
            self.over = error.errno == socket.EAI_NONAME
        except OSError as error:
            self.refusal = os.strerror(error.errno).lower() if error.errno else str(error)
