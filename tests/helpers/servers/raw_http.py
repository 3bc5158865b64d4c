"""HTTP over raw sockets, for clients that no HTTP library would be."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

HEAD = "HTTP/1.1\r\nHost: localhost\r\n"
SMALL_BUFFER = 2048
TIMEOUT_SECONDS = 30.0


def connect(url: str, receive_buffer: int | None = None) -> socket.socket:
    """Open a connection, with a small receive buffer for clients that do not read."""
    address = urlsplit(url)
    assert address.hostname and address.port
    it = socket.socket()
    it.settimeout(TIMEOUT_SECONDS)
    if receive_buffer is not None:
        it.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    it.connect((address.hostname, address.port))
    return it


@contextmanager
def connections(url: str, count: int, first: bytes = b"") -> Iterator[list[socket.socket]]:
    """Open ``count`` connections that each send ``first``."""
    with ExitStack() as stack:
        opened = [stack.enter_context(connect(url)) for _ in range(count)]
        for it in opened:
            it.sendall(first)
        yield opened


def request(method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return f"{method} {path} {HEAD}{lines}{length}\r\n".encode() + body


def status(it: socket.socket) -> int | None:
    try:
        answer = it.recv(65_536)
    except ConnectionError:
        return None
    return int(answer.split(b" ", 2)[1]) if answer else None


def is_closed(it: socket.socket) -> bool:
    """Read until the server closes the connection. Returns False if that takes longer than a test waits."""
    try:
        while it.recv(65_536):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def ask(url: str, path: str, headers: Mapping[str, str] | None = None) -> int | None:
    """Return the status of a GET on a new connection."""
    with connect(url) as it:
        it.sendall(request("GET", path, headers=headers))
        return status(it)
