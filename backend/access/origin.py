"""Whether a request was meant for this server: its Host, and the page that sent it.

A page of a stranger can make a browser on this machine ask for anything on loopback. It cannot choose the Host of an
address that it does not own, nor the headers in which browsers say where a request comes from.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from backend.access.roles import READING_METHODS
from backend.addresses import is_address

SAME_SITE = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site for our own pages, and for addresses that people type."""


def is_own_host(name: str, allowed: Collection[str]) -> bool:
    """Whether a Host can only be this server: an address, localhost, or a name that the settings allow.

    Under DNS rebinding a browser sends the stranger's name. An address is no name, so nobody can point it elsewhere.
    """
    return name == "localhost" or name in allowed or is_address(name)


def is_from_elsewhere(method: str, headers: Headers) -> bool:
    """Whether a page of another site sent it. Programs that are no browsers say nothing, and are not."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in SAME_SITE
    origin = headers.get("origin")
    return method not in READING_METHODS and origin is not None and urlsplit(origin).netloc != headers.get("host")
