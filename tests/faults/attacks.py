"""Attack a real server over raw sockets on loopback, at full size and with the default limits; print a table.

    .venv/bin/python -m tests.faults.attacks

Takes a few minutes and needs no network. The exit code is 1 if an attack kept others out, made the server answer with
an error of its own, or took more memory, time or log than allowed. The file that ATTACKS_RECORD names gets the
results as JSON.
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx
import psutil

from mxd.backend.api.routes.server import MAX_DOWNLOADS
from mxd.backend.database.access_tokens import create_token
from mxd.backend.database.engine import opened
from mxd.backend.inference.service import WAIT_SECONDS
from mxd.backend.settings import Settings
from mxd.trainer.language_model.untrusted.template_process import LIMIT_SECONDS
from mxd.trainer.storage.database.open import writing
from tests.faults.world import Place, make_place
from tests.helpers.language_models import ENDLESS_TEMPLATE
from tests.helpers.processes import installed
from tests.helpers.servers import raw_http
from tests.helpers.servers.raw_http import HEAD

LIMITS = Settings()
MOST_MEMORY_MB = 100
MOST_SECONDS = 5.0
"""Within which a request of somebody else must be answered during an attack."""
MOST_LOG_BYTES = 100_000
RUN = "/api/runs/small"


@dataclass(frozen=True)
class Target:
    """A server that requires tokens."""

    url: str
    process: psutil.Process
    data: Path
    headers: Mapping[str, str]
    answers: list[tuple[int, float]] = field(default_factory=list)
    """Status and seconds of every answer that was waited for during an attack."""

    def memory_mb(self) -> float:
        """Resident memory."""
        return float(self.process.memory_info().rss / 2**20)

    def check_others(self) -> str:
        """Browse as somebody else and say how long it took.

        Raises:
            AssertionError: another status than 200, or too slow.
        """
        began = time.monotonic()
        status = raw_http.ask(self.url, "/api/runs", self.headers)
        took = time.monotonic() - began
        self.answers.append((status or 0, took))
        assert status == 200, f"others get {status}"
        assert took < MOST_SECONDS, f"others wait {took:.1f} s"
        return f"others browse in {took * 1000:.0f} ms"

    def send(self, method: str, path: str, body: object) -> httpx.Response:
        """Send a request as a well-behaved client.

        Raises:
            AssertionError: the answer is an error of the server, other than 503 with Retry-After.
        """
        began = time.monotonic()
        with httpx.Client(base_url=self.url, headers=dict(self.headers), timeout=120) as client:
            answer = client.request(method, path, json=body)
        self.answers.append((answer.status_code, time.monotonic() - began))
        honest = answer.status_code == 503 and "retry-after" in answer.headers
        assert answer.status_code < 500 or honest, f"{method} {path} gets {answer.status_code}"
        return answer


@contextmanager
def held(target: Target, count: int, first: bytes, buffer: int | None = None) -> Iterator[list[socket.socket]]:
    """Hold as many connections as the server accepts, up to ``count``."""
    with ExitStack() as stack:
        connections = []
        for _ in range(count):
            it = stack.enter_context(raw_http.connect(target.url, buffer))
            try:
                it.sendall(first)
            except ConnectionError:
                continue
            connections.append(it)
        yield connections


def half_sent_bodies(target: Target) -> str:
    """205 half-sent sign-ins."""
    first = f"POST /api/access {HEAD}Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{{".encode()
    with held(target, 205, first):
        return target.check_others()


def endless_header(target: Target) -> str:
    """One header of up to 200 MB."""
    before, sent = target.memory_mb(), 0
    with raw_http.connect(target.url) as it:
        it.sendall(f"GET / {HEAD}X: ".encode())
        try:
            while sent < 200 * 2**20:
                sent += it.send(b"x" * 2**16)
        except ConnectionError:
            pass
    grown = target.memory_mb() - before
    assert grown < MOST_MEMORY_MB, f"memory grew by {grown:.0f} MB"
    return f"cut off after {sent / 2**20:.1f} MB, memory +{max(0, grown):.0f} MB, {target.check_others()}"


def half_open_connections(target: Target) -> str:
    """1,064 connections with half a request line."""
    with held(target, 1_064, b"GET /api") as connections:
        began = time.monotonic()
        while raw_http.ask(target.url, "/api/runs", target.headers) != 200:
            assert time.monotonic() - began < LIMITS.request_seconds + MOST_SECONDS, "others are kept out"
            time.sleep(0.2)
        out = time.monotonic() - began
        target.answers.append((200, out))
        closed = sum(raw_http.is_closed(it) for it in connections)
    assert closed == len(connections), "some stay open"
    assert out < LIMITS.request_seconds + MOST_SECONDS
    return f"others are out for {out:.1f} s at most, all are closed in {time.monotonic() - began:.1f} s"


def unread_streams(target: Target) -> str:
    """128 steering clients that do not read."""
    body = b'{"prompt":"the old fox","sampling":{"max_tokens":60,"samples":4,"temperature":1.0}}'
    steering = raw_http.request("POST", f"{RUN}/steering", body, {**target.headers, "Content-Type": "application/json"})
    with held(target, 128, steering, raw_http.SMALL_BUFFER):
        began = time.monotonic()
        while (answer := target.send("POST", f"{RUN}/routing", {"text": "the fox"})).status_code == 503:
            assert time.monotonic() - began < 300, "routing is blocked"
            time.sleep(min(2.0, float(answer.headers["retry-after"])))
        assert answer.status_code == 200, answer.text
        return f"routing is answered after {time.monotonic() - began:.1f} s, {target.check_others()}"


def send_together(target: Target, count: int, allowed: set[int], send: Callable[[], httpx.Response]) -> str:
    """Send a request from many threads. Others must be answered meanwhile, and all statuses must be allowed ones."""
    with ThreadPoolExecutor(count) as threads:
        sent = [threads.submit(send) for _ in range(count)]
        time.sleep(1)
        said = target.check_others()
    statuses = sorted({each.result().status_code for each in sent})
    assert set(statuses) <= allowed, f"statuses {statuses}"
    return f"{said}; they got {', '.join(map(str, statuses))}"


def waiting_writers(target: Target) -> str:
    """41 writers behind a lock of another process."""
    holder = sqlite3.connect(target.data / "mxd.sqlite", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        return send_together(target, 41, {503}, lambda: target.send("PATCH", f"{RUN}/experts/1", {"label": "x"}))
    finally:
        holder.execute("ROLLBACK")
        holder.close()


def large_seeds(target: Target) -> str:
    """Seeds around 2^64 / 1,000,003 and 2^53."""
    for seed in (18_446_688_736_430, 2**53 - 1):
        body = {"prompt": "the old fox", "sampling": {"max_tokens": 2, "seed": seed}}
        answer = target.send("POST", f"{RUN}/steering", body)
        assert answer.status_code == 200, answer.text
        assert "event: done" in answer.text, answer.text
    return "texts are written"


def endless_chat_templates(target: Target) -> str:
    """24 chats with a template of two nested loops."""
    body = {"text": "", "turns": [{"role": "user", "text": "hello"}]}
    return send_together(target, 24, {400, 503}, lambda: target.send("POST", f"{RUN}/routing", body))


def unread_bundles(target: Target) -> str:
    """20 downloads that are not read."""
    before = {path: path.stat().st_size for path in Path(tempfile.gettempdir()).glob("mxd-bundle-*/*")}
    with held(
        target, 20, raw_http.request("GET", f"{RUN}/bundle", headers=target.headers), raw_http.SMALL_BUFFER
    ) as connections:
        statuses = sorted({raw_http.status(it) or 0 for it in connections[:3]})
        files = [it for it in Path(tempfile.gettempdir()).glob("mxd-bundle-*/*") if it not in before]
        said = target.check_others()
    assert len(files) <= MAX_DOWNLOADS, f"{len(files)} files"
    return f"statuses {statuses}, {len(files)} file on disk, {said}"


ATTACKS: dict[Callable[[Target], str], tuple[int, float]] = {
    half_sent_bodies: (205, MOST_SECONDS),
    endless_header: (1, MOST_SECONDS),
    half_open_connections: (1_064, LIMITS.request_seconds + MOST_SECONDS),
    unread_streams: (128, 120),
    waiting_writers: (41, 2 * LIMITS.write_seconds + MOST_SECONDS),
    large_seeds: (2, 30),
    endless_chat_templates: (24, WAIT_SECONDS + LIMIT_SECONDS + MOST_SECONDS),
    unread_bundles: (20, MOST_SECONDS),
}
"""Attack -> its connections or requests, and the most seconds in which a request must be answered."""


@dataclass(frozen=True)
class Outcome:
    """Result of an attack."""

    attack: str
    cases: int
    failures: int
    slowest_seconds: float
    """Time of the slowest answer that was waited for."""
    limit_seconds: float
    said: str


def tried(attack: Callable[[Target], str], target: Target) -> Outcome:
    """Run an attack."""
    cases, limit = ATTACKS[attack]
    target.answers.clear()
    failures = 0
    try:
        said = attack(target)
    except (AssertionError, httpx.HTTPError, TimeoutError) as error:
        said, failures = f"{type(error).__name__}: {error}", 1
    slowest = max((seconds for _, seconds in target.answers), default=0.0)
    failures += sum(status >= 500 and status != 503 for status, _ in target.answers) + (slowest > limit)
    return Outcome((attack.__doc__ or "").strip().rstrip("."), cases, failures, slowest, limit, said)


@contextmanager
def served(place: Place) -> Iterator[tuple[Target, Path]]:
    """Start a server that requires tokens. Yields it and the file with its log."""
    with opened(place.database) as database, writing(database) as session:
        token = create_token(session, "write", "an attack").token
    words = ("serve", "--data", str(place.data), "--access", "tokens", "--port", "0", "--device", "cpu")
    with installed(*words, folder=place.folder) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        log = place.folder / "log"
        url = process.stdout.readline().split()[5]
        copying = threading.Thread(target=_copy, args=(process.stderr, log), daemon=True)
        copying.start()
        try:
            yield Target(url, psutil.Process(process.pid), place.data, {"Authorization": f"Bearer {token}"}), log
        finally:
            process.kill()
            copying.join()


def _copy(lines: Iterator[str], log: Path) -> None:
    with log.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(line)


def main() -> int:
    """Run every attack and print one line for each."""
    os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        place = make_place(Path(folder))
        (place.data / "runs" / "small" / "tokenizer" / "chat_template.jinja").write_text(ENDLESS_TEMPLATE)
        with served(place) as (target, log):
            target.send("POST", f"{RUN}/routing", {"text": "the fox"}).raise_for_status()
            for attack in ATTACKS:
                outcomes.append(tried(attack, target))
                _print(outcomes[-1])
                time.sleep(1)
            target.check_others()
        written = log.read_text()
    is_short = len(written) < MOST_LOG_BYTES and "Traceback" not in written
    outcomes.append(Outcome("Log of all attacks", 1, int(not is_short), 0.0, 0.0, f"{len(written):,} bytes"))
    _print(outcomes[-1])
    if file := os.environ.get("ATTACKS_RECORD"):
        Path(file).write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    if not is_short:
        print(written[-2000:], file=sys.stderr)
    return int(any(outcome.failures for outcome in outcomes))


def _print(outcome: Outcome) -> None:
    word = "FAILED" if outcome.failures else "held"
    print(f"| {outcome.attack} | {word} | {outcome.slowest_seconds:.1f} s | {outcome.said} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
