"""Addresses and the names in Host headers."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def host_name(header: str) -> str:
    """The name in a Host header, without port and brackets, in lower case; empty where it is none."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower().rstrip(".")
    except ValueError:
        return ""


def is_address(name: str) -> bool:
    """Whether it is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine alone."""
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)
