"""Shell completion: bash completes, and the other scripts contain every command."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mxd.backend.cli.main import run
from tests.helpers.processes import installed

Capture = pytest.CaptureFixture[str]


def script(shell: str, capsys: Capture) -> str:
    assert run(["--completion", shell]) == 0
    return capsys.readouterr().out


def test_bash_completes(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "novel.txt").touch()
    (tmp_path / "mxd.bash").write_text(script("bash", capsys))
    for line, offered in {
        "eval": {"evaluate", "evaluate-steering"},
        "train --met": {"--method"},
        "train --init e": {"examples"},
        "database ch": {"check"},
        "index --dataset nov": {"novel.txt"},
    }.items():
        places = f"COMP_WORDS=(mxd {line}); COMP_CWORD={len(line.split())}"
        asked = f'source mxd.bash; {places}; _shtab_mxd; printf "%s\\n" "${{COMPREPLY[@]}}"'
        answered = subprocess.run(["bash", "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert set(answered.stdout.split()) == offered


def test_a_closed_pipe_prints_no_traceback(tmp_path: Path) -> None:
    with installed("--completion", "bash", folder=tmp_path) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 141
