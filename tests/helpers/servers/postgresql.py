"""A PostgreSQL server for tests, started from the programs on this machine."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

PLACES = ("usr/lib/postgresql/*/bin/initdb", "usr/pgsql-*/bin/initdb")
QUICK = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "listen_addresses=", "shared_buffers=32MB")
"""Settings without durability, because the data are temporary; the server opens no port."""
LASTING = tuple(setting for setting in QUICK if setting != "synchronous_commit=off")
"""Settings under which committed data survive a kill of the server."""
START_SECONDS = 60


def programs() -> Path:
    """Folder of ``initdb`` and ``postgres``."""
    named = os.environ.get("MXD_POSTGRESQL")
    if named:
        return Path(named)
    found = shutil.which("initdb")
    places = [Path(found)] if found else [path for place in PLACES for path in Path("/").glob(place)]
    if not places:
        raise FileNotFoundError(
            "PostgreSQL's programs are not on this machine: bash scripts/postgresql.sh installs them, as make test "
            "does; or name their folder in MXD_POSTGRESQL."
        )
    return max(places, key=lambda path: [int(part) for part in path.parts if part.isdigit()]).parent


class Server:
    """A server that can be killed and restarted; databases are created on demand."""

    def __init__(self, folder: Path, user: dict[str, Any], settings: Sequence[str]) -> None:
        self._folder = folder
        self._user = user
        self._settings = settings
        self._numbers = count()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server and wait until it answers."""
        options = [word for setting in self._settings for word in ("-c", setting)]
        command = [str(programs() / "postgres"), "-D", str(self._folder / "data"), "-k", str(self._folder), *options]
        with (self._folder / "log").open("a") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder, **self._user)
        self._wait(self._process)

    @property
    def is_running(self) -> bool:
        """True if it was started, and neither killed nor stopped."""
        return self._process is not None

    def kill(self) -> None:
        assert self._process is not None
        processes = [psutil.Process(self._process.pid), *psutil.Process(self._process.pid).children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        psutil.wait_procs(processes, timeout=START_SECONDS)
        self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(timeout=START_SECONDS)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                self.execute("SELECT 1")
                return
            except OperationalError:
                if process.poll() is not None or time.monotonic() > end:
                    raise AssertionError(f"PostgreSQL did not start:\n{(self._folder / 'log').read_text()}") from None
                time.sleep(0.05)

    def url(self, database: str) -> str:
        return f"postgresql://tests@/{database}?host={self._folder}"

    def new(self, template: str = "template1") -> str:
        """Create a database from a template and return its URL. The template must have no connections."""
        name = f"store_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def execute(self, statement: str) -> None:
        url = self.url("postgres").replace("postgresql:", "postgresql+psycopg:")
        engine = create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(statement))
        engine.dispose()


@contextmanager
def postgresql(settings: Sequence[str] = QUICK) -> Iterator[Server]:
    """Start a server in a temporary folder with a Unix socket; stop it and delete the folder at the end."""
    # Not in pytest's folder: the server refuses to run as root, and pytest's folder is private to root.
    folder = Path(tempfile.mkdtemp(prefix="mxd-pg-"))
    user: dict[str, Any] = {}
    if not os.geteuid():
        shutil.chown(folder, "nobody")
        user = {"user": "nobody", "group": "nogroup", "extra_groups": []}
    try:
        words = ["-D", str(folder / "data"), "-U", "tests", "--auth", "trust", "--no-sync", "--locale", "C"]
        command = [str(programs() / "initdb"), *words, "--encoding", "UTF8"]
        made = subprocess.run(command, capture_output=True, text=True, cwd=folder, **user)
        assert made.returncode == 0, made.stderr
        server = Server(folder, user, settings)
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)
