"""Full or read-only disks, damaged or locked databases and runs, and a server that loses its files."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from benchmarks.faults.kills import free_port, wait_for
from benchmarks.faults.world import Ended, Place, start, to_its_end

SOME_COMMANDS = (
    ["runs"],
    ["database", "check"],
    ["label", "small"],
    ["route", "small", "the old fox", "--device", "cpu"],
)
TIMES = 10


def index_words(place: Place) -> list[str]:
    """Index the run again."""
    return ["index", "small", "--dataset", place.text, "--tokens", "3000", "--device", "cpu"]


def train_words(place: Place) -> list[str]:
    """Train another run."""
    sizes = "--layer 1 --tokens 1k --k 4 --num-experts 40 --context-length 16 --batch-tokens 64"
    source = str(place.folder / "language-model")
    return ["train", source, *sizes.split(), "--dataset", place.text, "--name", "another", "--device", "cpu"]


def writing_commands(place: Place) -> list[list[str]]:
    """Commands that write into the data folder."""
    return [index_words(place), ["label", "small"], train_words(place)]


@contextmanager
def copy_of(place: Place, folder: Path | None = None) -> Iterator[Place]:
    """Copy the data folder, to damage the copy."""
    with tempfile.TemporaryDirectory(dir=folder) as made:
        copy = Path(made) / "place"
        shutil.copytree(place.folder, copy)
        yield Place(copy)


def not_good(what: str, words: list[str], ended: Ended) -> list[str]:
    """Report a command that neither worked nor printed a clear error."""
    return [] if ended.is_good else [f"{what}: {words[0]} ended with {ended.code}: {ended.said[-300:]}"]


def after_all(what: str, place: Place) -> list[str]:
    """Problems that remain after the disk works again."""
    wrong = [f"{what}: {finding}" for finding in place.findings()]
    ended = to_its_end(index_words(place), place)
    return wrong + (
        [] if ended.code == 0 else [f"{what}: afterwards index ended with {ended.code}: {ended.said[-300:]}"]
    )


# ---------------------------------------------------------------- disks


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path | None]:
    """A file system in memory; None if this user may not mount one."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", folder]
        if os.geteuid() or subprocess.run(words, capture_output=True, check=False).returncode:
            yield None
            return
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


def disk_full(place: Place, chance: random.Random) -> list[str]:
    """A disk with little space left or, without the right to mount one, a limit on file sizes."""
    wrong: list[str] = []
    used = sum(path.stat().st_size for path in place.folder.rglob("*") if path.is_file())
    with small_disk(used // 10**6 + 3) as disk, copy_of(place, disk) as copy:
        for words in writing_commands(copy):
            filled = copy.folder / "filled"
            room = chance.randrange(0, 200_000)
            if disk is not None:
                filled.write_bytes(bytes(max(0, shutil.disk_usage(disk).free - room - 20_000)))
            ended = to_its_end(words, copy, None if disk is not None else 50_000)
            wrong += not_good("disk full", words, ended)
            filled.unlink(missing_ok=True)
        wrong += after_all("disk full", copy)
    return wrong


def read_only(place: Place, _chance: random.Random) -> list[str]:
    """A data folder without write permission."""
    with small_disk(64) as disk:
        if disk is None:
            return ["read-only: skipped, as only root may mount a disk"]
        with copy_of(place, disk) as copy:
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            try:
                said = Path(tempfile.mkstemp(suffix=".txt")[1])
                wrong = []
                for words in (*writing_commands(copy), *SOME_COMMANDS):
                    wrong += not_good("read-only", words, to_its_end(words, copy, said=said))
                said.unlink()
            finally:
                subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
            return wrong + after_all("read-only", copy)


# ---------------------------------------------------------------- files


def damage(path: Path, chance: random.Random) -> None:
    """Truncate a file, or flip some of its bits."""
    content = bytearray(path.read_bytes())
    if chance.random() < 0.3:
        content = content[: chance.randrange(len(content))]
    else:
        for _ in range(chance.randrange(1, 40)):
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def damaged_database(place: Place, chance: random.Random) -> list[str]:
    """A database that is truncated or modified in several places."""
    wrong = []
    for number in range(TIMES):
        with copy_of(place) as copy:
            damage(copy.data / "mxd.sqlite", chance)
            for words in SOME_COMMANDS[:3]:
                wrong += not_good(f"damaged database {number}", words, to_its_end(words, copy))
    return wrong


def damaged_run(place: Place, chance: random.Random) -> list[str]:
    """Files of a run and its language model that are truncated or modified in several places."""
    wrong = []
    for number in range(TIMES):
        with copy_of(place) as copy:
            files = [
                path for path in (copy.data / "runs" / "small").rglob("*") if path.is_file() and path.stat().st_size
            ]
            chosen = chance.choice(files)
            damage(chosen, chance)
            words = SOME_COMMANDS[3]
            wrong += not_good(f"damaged {chosen.name} {number}", words, to_its_end(words, copy))
    return wrong


def locked(place: Place, _chance: random.Random) -> list[str]:
    """A database that another process keeps locked."""
    with copy_of(place) as copy:
        holder = sqlite3.connect(copy.data / "mxd.sqlite", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        wrong = not_good("locked", ["label"], to_its_end(["label", "small"], copy))
        wrong += not_good("locked", ["runs"], to_its_end(["runs"], copy))
        holder.execute("ROLLBACK")
        holder.close()
        return wrong + after_all("locked", copy)


# ---------------------------------------------------------------- a running server


@contextmanager
def server(place: Place) -> Iterator[tuple[httpx.Client, int]]:
    """A server on the data folder, its client and its process id."""
    port = free_port()
    process = start(["serve", "--port", str(port), "--device", "cpu"], place, place.folder / "said.txt")
    assert process.pid is not None
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            wait_for(client)
            yield client, process.pid
    finally:
        process.join(10)
        process.kill()
        process.join()


def language_model_gone(place: Place, _chance: random.Random) -> list[str]:
    """Delete the language model's folder under a running server: browsing works, other requests fail."""
    with copy_of(place) as copy:
        settings = copy.data / "runs" / "small" / "run.json"
        own = copy.folder / "language-model"
        settings.write_text(settings.read_text().replace(str(place.folder / "language-model"), str(own)))
        with server(copy) as (client, pid):
            shutil.rmtree(own)
            browsed = client.get("/api/runs/small/experts").status_code
            routed = client.post("/api/runs/small/routing", json={"text": "the old fox"})
            os.kill(pid, signal.SIGTERM)
    wrong = [] if browsed == 200 else [f"language model gone: browsing was answered with {browsed}"]
    if routed.status_code >= 500 or "message" not in routed.text:
        wrong.append(f"language model gone: routing was answered with {routed.status_code}: {routed.text[:200]}")
    return wrong


def stopped_with_streams(place: Place, _chance: random.Random) -> list[str]:
    """Send SIGTERM during a stream: new requests fail, the stream may finish, the process ends in seconds."""
    body = {"prompt": "the old fox", "sampling": {"max_tokens": 12, "temperature": 1.0}}
    lines: list[str] = []
    first = threading.Event()

    with server(place) as (client, pid):

        def read() -> None:
            with client.stream("POST", "/api/runs/small/steering", json=body) as answer:
                for line in answer.iter_lines():
                    lines.append(line)
                    first.set()

        reader = threading.Thread(target=read)
        reader.start()
        assert first.wait(60)
        began = time.monotonic()
        os.kill(pid, signal.SIGTERM)
        reader.join(30)
        while _is_alive(pid) and time.monotonic() - began < 30:
            time.sleep(0.05)
        took = time.monotonic() - began
    wrong = [] if took < 15 else [f"SIGTERM: it took {took:.0f} s to stop"]
    return wrong if "event: done" in lines else [*wrong, f"SIGTERM: the stream ended with {lines[-2:]}"]


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


KINDS: dict[str, Callable[[Place, random.Random], list[str]]] = {
    "disk-full": disk_full,
    "read-only": read_only,
    "damaged-database": damaged_database,
    "damaged-run": damaged_run,
    "locked": locked,
    "language-model-gone": language_model_gone,
    "sigterm": stopped_with_streams,
}
