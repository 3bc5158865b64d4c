"""``mxd verify``: repeat a recorded measurement and compare."""

import json
import math
import re
import shlex
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from mxd.backend.cli.base import Command, Positional
from mxd.backend.cli.console import columns, duration
from mxd.backend.settings import DEMO_DATABASE, Settings
from mxd.trainer.errors import UserError

READS_DATABASE = ("ablate", "evaluate-steering", "label")
REPEATABLE = (*READS_DATABASE, "benchmark", "circuit", "contrast", "evaluate", "find", "probe", "recurrence")
"""Commands that only measure, first those that read the index from the database. Others are never executed."""
NOT_COMPARED = {"provenance", "seconds", "is_stored"}
KEYS = ("expert", "run", "subject", "name")
"""Fields that identify an element of a list. A record may contain only some of the elements."""
TOLERANCE = 1e-6
"""Largest relative difference that is due to rounding."""
RAW = re.compile(r"results/raw/[\w./-]+\.json\b")


class Difference(NamedTuple):
    """A recorded value that is another one now."""

    place: str
    recorded: Any
    now: Any

    @property
    def size(self) -> float:
        """Relative difference; infinite between values that are not both numbers."""
        if not (_is_number(self.recorded) and _is_number(self.now)):
            return math.inf
        recorded, now = float(self.recorded), float(self.now)
        return abs(recorded - now) / max(abs(recorded), abs(now), 1e-12)


class VerifyCommand(Command):
    """Run the command of a recorded result again, and say whether the numbers repeat.

    A record is the JSON of a measuring command, or a page of results that names such files. Its provenance contains the
    command, the weights' digest and the running time. Nothing in the data folder is changed.
    """

    examples: ClassVar = (
        "mxd verify contrast.json",
        "mxd verify docs/results/contrast.md --minutes 30",
        "mxd verify evaluation.json --json",
    )

    record: Positional[Path]
    """A .json file of results, or a .md page that names files in results/raw."""
    minutes: float = 10
    """Longest recorded running time of the commands that are run again, all together, in minutes. Short ones are run
    first."""

    def run(self) -> int:
        """Verify each recorded command. The exit code is 1 if a number differs."""
        recorded = self._recorded()
        if not recorded:
            raise UserError(
                f"{self.record} has no result with the command that measured it. Record results with --json."
            )
        left, verdicts = 60 * self.minutes, []
        for command, results in sorted(recorded.items(), key=lambda item: seconds_of(item[1])):
            verdict = self._verdict(shlex.split(command), results, left)
            left -= seconds_of(results) if verdict.startswith(("repeats", "differs")) else 0  # it was run
            verdicts.append({"command": command, "verdict": verdict})
        table = columns(("command", "verdict"), [(each["command"], each["verdict"]) for each in verdicts], 2)
        self.report(verdicts, "\n".join(table))
        return int(any(each["verdict"].startswith("differs") for each in verdicts))

    def _recorded(self) -> dict[str, list[dict[str, Any]]]:
        files = [self.record]
        if self.record.suffix == ".md":
            root = next((each for each in self.record.resolve().parents if (each / "results" / "raw").is_dir()), None)
            named = dict.fromkeys(RAW.findall(_read(self.record)))
            files = [root / name for name in named if (root / name).is_file()] if root else []
        commands: dict[str, list[dict[str, Any]]] = {}
        for file in files:
            try:
                document = json.loads(_read(file))
            except ValueError as error:
                raise UserError(f"{file} is not JSON: {error}. Give the output of a command with --json.") from error
            for result in results_in(document):
                commands.setdefault(result["provenance"]["command"], []).append(result)
        return commands

    def _verdict(self, words: Sequence[str], results: Sequence[Mapping[str, Any]], seconds_left: float) -> str:
        from mxd.backend.cli.commands.index import LabelCommand
        from mxd.backend.cli.parser import command_from
        from mxd.trainer.storage.database.open import sqlite_file_url
        from mxd.trainer.storage.run import Run
        from mxd.trainer.storage.run_sets import weights_digest

        if words[:1] != ["mxd"] or words[1:2] == [] or words[1] not in REPEATABLE:
            return "cannot be repeated: not a measuring command"
        try:
            command = command_from(words[1:])
            if isinstance(command, LabelCommand) and command.endpoint is not None:
                return "cannot be repeated: a language model wrote the labels"
            settings = command.settings(data=self.data or command.data, database=self.database or command.database)
            digests: dict[str, str] = {}
            for result in results:
                digests |= result["provenance"]["runs"]
            for name, digest in digests.items():
                if weights_digest([Run.load(name, settings.data)]) != digest:
                    return f"cannot be repeated: {name} has other weights now"
        except UserError as error:
            return f"cannot be repeated: {error}"
        seconds = seconds_of(results)
        if seconds > seconds_left:
            return f"needs {math.ceil(seconds / 60)} minutes: allow them with --minutes"
        print(f"Running for about {duration(seconds)}: {shlex.join(words)}", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="mxd-verify-") as folder:
            database = Path(folder) / "mxd.sqlite"
            if words[1] in READS_DATABASE:
                copy_database(settings, database)
            # The last of several equal flags counts.
            more = ["--json", "--database", sqlite_file_url(database)]
            more += ["--data", str(self.data)] if self.data is not None else []
            more += ["--out", f"{folder}/out"] if words[1] == "benchmark" else []
            done = subprocess.run([sys.executable, "-m", "mxd", *words[1:], *more], capture_output=True, text=True)
        if done.returncode:
            return f"cannot be repeated: {' '.join(done.stderr.splitlines()[-1:])}"
        return compare(results, results_in(json.loads(done.stdout)))


def seconds_of(results: Sequence[Mapping[str, Any]]) -> float:
    return float(max(result["provenance"]["seconds"] for result in results))


def compare(recorded: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> str:
    """Say whether recorded results of one command are equal to those of a new execution, up to rounding."""
    texts = [result["provenance"]["texts"] for result in (recorded[0], now[0])]
    if any(texts[1].get(name) != digest for name, digest in texts[0].items()):
        return "differs: the text is another one now"
    found = list(differences(list(recorded), list(now)))
    if not found:
        return "repeats"
    worst = max(found, key=lambda difference: difference.size)
    amount = "" if worst.size == math.inf else f" by up to {worst.size:.2g} of the value"
    code = [result["provenance"]["code"] or "unknown code" for result in (recorded[0], now[0])]
    same = "with the same code" if code[0] == code[1] else f"recorded with {code[0][:12]}, now {code[1][:12]}"
    return f"differs{amount} in {len(found):,} values: {worst.place} {worst.recorded}, now {worst.now}; {same}"


def results_in(document: Any) -> list[dict[str, Any]]:
    """Results with a recorded command that a JSON document contains at any depth, in order."""
    if isinstance(document, dict):
        provenance = document.get("provenance")
        if isinstance(provenance, dict) and "command" in provenance:
            if lacking := {"runs", "seconds"} - provenance.keys():
                raise UserError(
                    f"The provenance of a result of '{provenance['command']}' has no {' or '.join(sorted(lacking))}. "
                    "Record the result again with --json."
                )
            return [document]
        document = list(document.values())
    return [result for each in document for result in results_in(each)] if isinstance(document, list) else []


def differences(recorded: Any, now: Any, place: str = "") -> Iterator[Difference]:
    """Values of a record that are not the same, up to rounding, in a new result. Further values of that are ignored."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        for key in recorded.keys() - NOT_COMPARED:
            yield from differences(recorded[key], now.get(key), f"{place}.{key}".lstrip("."))
    elif isinstance(recorded, list) and isinstance(now, list):
        yield from _differences_of_lists(recorded, now, place)
    elif _is_number(recorded) and _is_number(now):
        if not math.isclose(recorded, now, rel_tol=TOLERANCE, abs_tol=1e-12):
            yield Difference(place, recorded, now)
    elif recorded != now:
        yield Difference(place, recorded, now)


def _differences_of_lists(recorded: list[Any], now: list[Any], place: str) -> Iterator[Difference]:
    objects = all(isinstance(each, dict) for each in [*recorded, *now])
    key = next((key for key in KEYS if objects and all(key in each for each in [*recorded, *now])), None)
    if key is not None and len({str(each[key]) for each in now}) == len(now):
        named = {str(each[key]): each for each in now}
        for each in recorded:
            yield from differences(each, named.get(str(each[key])), f"{place}[{each[key]}]")
    elif len(recorded) != len(now):
        yield Difference(f"length of {place}", len(recorded), len(now))
    else:
        for index, (one, other) in enumerate(zip(recorded, now, strict=True)):
            yield from differences(one, other, f"{place}[{index}]")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"Cannot read {file}: {error}.") from error


def copy_database(settings: Settings, target: Path) -> None:
    """Copy the SQLite database of the settings, with what is only in its log yet; or the demo's, if it has one."""
    from sqlalchemy import make_url

    from mxd.backend.database.demo import unpack_database
    from mxd.trainer.storage.database.engine import connect

    url = make_url(settings.database_url)
    if url.get_backend_name() == "sqlite" and Path(str(url.database)).is_file():
        engine = connect(settings.database_url)
        with closing(engine.raw_connection()) as source, closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
        engine.dispose()
    elif (settings.data / DEMO_DATABASE).is_file():
        unpack_database(settings.data, target)
