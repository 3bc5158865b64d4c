"""Whether the hub is out of reach: asked once and briefly, before the clients that would try again and again."""

from __future__ import annotations

import threading
from urllib.error import HTTPError
from urllib.request import Request, urlopen

PATIENCE_SECONDS = 3.0


def endpoint() -> str:
    """Address of the hub: ``HF_ENDPOINT``, or the public one."""
    from huggingface_hub import constants

    address: str = constants.ENDPOINT
    return address


def out_of_reach() -> bool:
    """Whether the hub does not answer; known within a few seconds, also where names are looked up in vain.

    False under ``HF_HUB_OFFLINE``: then its clients do not try.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    heard = threading.Event()
    # In a thread, because looking up a name knows no time limit.
    threading.Thread(target=_ask, args=(endpoint(), heard), daemon=True).start()
    return not heard.wait(PATIENCE_SECONDS)


def _ask(address: str, heard: threading.Event) -> None:
    try:
        urlopen(Request(address, method="HEAD"), timeout=PATIENCE_SECONDS).close()
    except HTTPError:
        heard.set()  # whatever it thinks of the question
    except OSError:
        return
    heard.set()
