"""``kill -9`` at random moments of indexing, evaluating, labelling, exporting and serving."""

import random
import socket
import threading
import time
from collections.abc import Callable

import httpx
from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from benchmarks.faults.world import Place, start, to_its_end
from mxd.backend.database.annotations import LabelRecord
from mxd.backend.database.engine import opened
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.tables import AutomaticLabelRecord, EvaluationRecord, IndexRecord

Check = Callable[[], list[str]]
"""Problems after a kill, one sentence each."""


def killed(words: list[str], place: Place, kills: int, chance: random.Random, check: Check) -> list[str]:
    """Start a command ``kills`` times, kill it each time and check the data; then let it finish."""
    wrong = []
    to_its_end(["runs"], place)  # the first process waits until everything is imported
    whole = to_its_end(words, place)
    assert whole.code == 0, whole.said
    longest, done = whole.seconds, 0
    while done < kills:
        began = time.monotonic()
        process = start(words, place, place.folder / "said.txt")
        process.join(chance.uniform(0.0, 1.0) * longest)
        if process.exitcode is None:
            done += 1
        else:  # too late: the first one had more to get ready
            longest = time.monotonic() - began
        process.kill()
        process.join()
        wrong += [f"{words[0]}, kill {done}: {finding}" for finding in check()]
    after = to_its_end(words, place)
    if after.code != 0:
        wrong.append(f"{words[0]} does not work any more: {after.said}")
    return wrong + place.findings()


def index(place: Place, kills: int, chance: random.Random) -> list[str]:
    """Check that the index is either the previous or the new one, complete."""
    sizes = (2_000, 3_200)

    def check() -> list[str]:
        with opened(place.database) as database, Session(database) as session:
            tokens = session.scalar(select(IndexRecord.tokens))
        lost = [] if tokens is not None and tokens in sizes else [f"an index of {tokens} tokens"]
        return lost + place.findings()

    return killed(["index", "small", "--dataset", place.text, "--tokens", "3200"], place, kills, chance, check)


def evaluate_words(place: Place) -> list[str]:
    """Evaluate the run on a few tokens."""
    text = ["--dataset", place.text, "--seen-text", "--tokens", "1600", "--device", "cpu"]
    return ["evaluate", "small", *text, "--prompts", "2", "--resamples", "200"]


def evaluate(place: Place, kills: int, chance: random.Random) -> list[str]:
    """Check that there is a complete evaluation, or none."""

    def check() -> list[str]:
        with opened(place.database) as database, writing(database) as session:
            results = session.scalars(select(EvaluationRecord.result)).all()
            session.execute(delete(EvaluationRecord))
        return [] if all("loss_increase" in result for result in results) else ["half an evaluation"]

    return killed(evaluate_words(place), place, kills, chance, check)


def label(place: Place, kills: int, chance: random.Random) -> list[str]:
    """Check that there are all automatic labels, or none."""
    with opened(place.database) as database, Session(database) as session:
        every = session.scalar(select(func.count()).select_from(AutomaticLabelRecord))
    assert every

    def check() -> list[str]:
        with opened(place.database) as database, writing(database) as session:
            there = session.scalar(select(func.count()).select_from(AutomaticLabelRecord))
            session.execute(delete(AutomaticLabelRecord))
        return [] if there in (0, every) else [f"{there} of {every} labels"]

    return killed(["label", "small"], place, kills, chance, check)


def export(place: Place, kills: int, chance: random.Random) -> list[str]:
    """Check that the file is missing or complete."""
    target = place.folder / "report.html"
    evaluated = to_its_end(evaluate_words(place), place)
    assert evaluated.code == 0, evaluated.said

    def check() -> list[str]:
        whole = not target.exists() or target.read_text("utf-8").endswith("</html>")
        target.unlink(missing_ok=True)
        return [] if whole else ["half a report"]

    return killed(["report", "--out", str(target)], place, kills, chance, check)


# ---------------------------------------------------------------- a server with somebody who writes


def serve(place: Place, kills: int, chance: random.Random) -> list[str]:
    """Check that every acknowledged write is there after the kill."""
    wrong = []
    for number in range(kills):
        acknowledged = _write_until_killed(place, number, chance)
        with opened(place.database) as database, Session(database) as session:
            there = {(one.run, one.expert): one.label for one in session.scalars(select(LabelRecord))}
        lost = [expert for expert, label in acknowledged.items() if there.get(("small", expert), "") < label]
        if lost:
            wrong.append(f"serve, kill {number + 1}: labels of experts {lost} are lost")
        wrong += place.findings()
    return wrong


def _write_until_killed(place: Place, number: int, chance: random.Random) -> dict[int, str]:
    """Labels that the server acknowledged before it was killed, by expert; a later label overwrites an earlier one."""
    port = free_port()
    process = start(["serve", "--port", str(port), "--device", "cpu"], place, place.folder / "said.txt")
    acknowledged: dict[int, str] = {}

    def write() -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            wait_for(client)
            began.set()
            for count in range(100_000):
                expert, written = count % 40, f"{number:03}-{count:06}"
                try:
                    answer = client.patch(f"/api/runs/small/experts/{expert}", json={"label": written})
                except httpx.TransportError:
                    return
                if answer.status_code == 204:
                    acknowledged[expert] = written

    began = threading.Event()
    writer = threading.Thread(target=write)
    writer.start()
    assert began.wait(60), (place.folder / "said.txt").read_text("utf-8")
    time.sleep(chance.uniform(0.05, 0.6))
    process.kill()
    process.join()
    writer.join()
    assert acknowledged
    return acknowledged


def free_port() -> int:
    """A free port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def wait_for(client: httpx.Client) -> None:
    """Wait until a server answers."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            client.get("/healthz")
            return
        except httpx.TransportError:
            time.sleep(0.05)


KINDS: dict[str, Callable[[Place, int, random.Random], list[str]]] = {
    "index": index,
    "evaluate": evaluate,
    "label": label,
    "export": export,
    "serve": serve,
}
