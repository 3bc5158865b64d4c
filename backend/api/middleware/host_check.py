"""Check that a request is meant for this server: its Host, and the page that sent it.

A web page can make a browser on this machine send requests to loopback. It cannot choose the Host for an address that
it does not own, nor the headers in which browsers state the origin of a request.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from mxd.backend.api.middleware.roles import READING_METHODS
from mxd.backend.settings import is_ip_address

SAME_SITE = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site for our own pages and for typed addresses."""


def is_own_host(name: str, allowed: Collection[str]) -> bool:
    """Return True for an IP address, localhost, or a name that the settings allow.

    Under DNS rebinding a browser sends the attacker's name. An IP address cannot be rebound.
    """
    return name == "localhost" or name in allowed or is_ip_address(name)


def is_cross_site(method: str, headers: Headers) -> bool:
    """Return True if a page of another site sent the request; only browsers send such headers."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in SAME_SITE
    origin = headers.get("origin")
    return method not in READING_METHODS and origin is not None and urlsplit(origin).netloc != headers.get("host")
