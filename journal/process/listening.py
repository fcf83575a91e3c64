"""Addresses to listen on: HOST:PORT, such as 127.0.0.1:5672 or [::1]:5672."""

from __future__ import annotations

import ipaddress
import re

_ADDRESS = re.compile(r"\[?([^\[\]]+?)\]?:(\d{1,5})")
_PORT_MAX = 65_535


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of an address. Raises ValueError for a text that is none."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[2]) > _PORT_MAX:
        raise ValueError(f"{text!r} is no address to listen on: expected host:port, such as 127.0.0.1:5672")
    return found[1], int(found[2])


def is_loopback(host: str) -> bool:
    """Whether a host can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
