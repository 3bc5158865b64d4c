"""``mxd export --format mxd``, and ``mxd serve FILE``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mxd.backend.cli.commands import serve
from mxd.backend.cli.main import run
from mxd.backend.settings import Settings
from mxd.trainer.storage.run import run_names
from tests.helpers.runs import World

Capture = pytest.CaptureFixture[str]


def test_a_packed_run_is_served(
    fitted: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    served: list[Settings] = []
    monkeypatch.setattr(serve, "serve", lambda settings, _when_ready: served.append(settings))
    monkeypatch.chdir(tmp_path)
    data = shutil.copytree(fitted.data, tmp_path / "data")
    assert run(["export", "small", "--format", "mxd", "--data", str(data)]) == 0
    assert capsys.readouterr().out.startswith("small.mxd, ")
    assert run(["serve", "small.mxd", "--port", "0"]) == 0
    assert run(["serve", "small.mxd", "--port", "0", "--into", "elsewhere"]) == 0
    assert [settings.data for settings in served] == [Path("small-opened"), Path("elsewhere")]
    assert run_names(Path("elsewhere")) == ["small"]
    assert run(["serve", "small.mxd", "--data", str(data)]) == 2
    assert "Leave out --data and --database." in capsys.readouterr().err
    for words, option in ((["--experts", "3"], "--experts"), (["--model-id", "gpt2"], "--model-id")):
        assert run(["export", "small", "--out", "tables", *words, "--data", str(data)]) == 2
        assert f"{option} " in capsys.readouterr().err
    assert run(["serve", "--into", "elsewhere"]) == 2
    assert "--into and --language-model require a .mxd file" in capsys.readouterr().err
    assert run(["serve", "none.mxd", "--port", "0"]) == 2
    assert "none.mxd" in capsys.readouterr().err
