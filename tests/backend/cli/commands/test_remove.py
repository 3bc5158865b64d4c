"""``mxd remove``: it asks, and protects user labels."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from mxd.backend.cli.main import run
from mxd.backend.database import annotations as notes
from mxd.backend.database.engine import open_database
from mxd.backend.database.steering_sessions import save_session, sessions_of
from mxd.trainer.storage.database.open import sqlite_url, writing
from tests.backend.cli.words import Capture, document


def test_removing_asks_and_protects_user_labels(
    trained: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_database(sqlite_url(trained / "data"))
    with writing(engine) as session:
        save_session(session, "small", "loud", {}, {})
    assert run(["remove", "small", "--yes"]) == 2
    assert "Add --with-labels to delete them too." in capsys.readouterr().err
    with writing(engine) as session:
        notes.set_label(session, "small", 3, "Foxes")
        assert sessions_of(session, "small")
    engine.dispose()
    assert run(["remove", "small", "--with-labels"]) == 2
    assert "Add --yes to delete it without asking." in capsys.readouterr().err
    answers = io.StringIO("no\ny\n")
    monkeypatch.setattr(answers, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", answers)
    assert run(["remove", "small", "--with-labels"]) == 1
    assert capsys.readouterr().out == "Nothing was deleted.\n"
    assert run(["remove", "small", "--with-labels", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "Delete run 'small', its index and 2 labels, notes, tags, lists and sessions? [y/N] "
    assert json.loads(printed.out) == {"run": "small", "removed": True, "labels_and_notes": 2}
    assert run(["runs", "--json"]) == 0
    assert document(capsys) == []
    assert run(["remove", "small"]) == 2
    assert "Unknown run 'small'. There are no runs yet." in capsys.readouterr().err
