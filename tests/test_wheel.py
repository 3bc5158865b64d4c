"""What a wheel holds, and what it does where there is no checkout. Made of the tracked files, without network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from backend.commands import demo
from tests.test_structure import ROOT, tracked
from trainer.config import SAMPLE

NEEDED = ("trainer", "backend", "data/demo", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")
BUILT = {"index.html": "<title>MxD Explorer</title>", "assets/index-1a2b.js": "go()", "assets/index-1a2b.js.gz": "z"}


def checkout(folder: Path) -> Path:
    """The tracked files that a wheel is made of, in ``folder``."""
    for path in tracked():
        if any(path.is_relative_to(part) for part in NEEDED):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, target)
    return folder


def wheel_of(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """What pip says when it makes a wheel of ``folder`` there, with the build tools of this environment."""
    words = ["pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", "made", *more]
    return subprocess.run([sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, unpacked; its front end is a stand-in, as tests of Python need no Node."""
    source = checkout(tmp_path_factory.mktemp("checkout"))
    for name, content in BUILT.items():
        path = source / "frontend" / "dist" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (source / "data" / "demo" / "runs" / "demo-l3-k16" / ".indexing").touch()
    made = wheel_of(source)
    assert made.returncode == 0, made.stderr
    (wheel,) = (source / "made").glob("*.whl")
    folder = tmp_path_factory.mktemp("unpacked")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def mxd(unpacked: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """``mxd`` of the wheel, in ``folder``."""
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    call = [sys.executable, "-c", "from backend.cli import main; main()", *words]
    return subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120)


def test_a_wheel_has_the_front_end_and_the_sample(unpacked: Path) -> None:
    front_end = unpacked / "backend" / "built_frontend"
    assert {name: (front_end / name).read_text() for name in BUILT} == BUILT
    sample = unpacked / "trainer" / "sample"
    wanted = {path.relative_to("data/demo") for path in tracked() if path.is_relative_to("data/demo")}
    assert {path.relative_to(sample) for path in sample.rglob("*") if path.is_file()} == wanted
    assert all((sample / path).read_bytes() == (SAMPLE / path).read_bytes() for path in wanted)


def test_a_wheel_has_every_module_and_nothing_else(unpacked: Path) -> None:
    wanted = {path for path in tracked() if path.suffix == ".py" and path.parts[0] in ("trainer", "backend")}
    assert {path.relative_to(unpacked) for path in unpacked.rglob("*.py")} == wanted
    folders = {path.name for path in unpacked.iterdir()}
    assert {name for name in folders if not name.endswith(".dist-info")} == {"trainer", "backend"}


def test_mxd_of_a_wheel_in_an_empty_folder(unpacked: Path, tmp_path: Path) -> None:
    help_text = mxd(unpacked, tmp_path, "--help")
    assert help_text.returncode == 0, help_text.stderr
    assert "serve the shipped sample at once" in help_text.stdout
    examined = mxd(unpacked, tmp_path, "doctor", "--json")
    assert examined.returncode == 0, examined.stderr
    found = {finding["check"]: finding for finding in json.loads(examined.stdout)}
    assert found["front end"]["found"] == f"built, in {unpacked / 'backend' / 'built_frontend'}"
    assert list(tmp_path.iterdir()) == []


def test_without_a_front_end_there_is_no_wheel(tmp_path: Path) -> None:
    refused = wheel_of(checkout(tmp_path))
    assert refused.returncode != 0
    assert "The front end has not been built; run make wheel" in refused.stderr + refused.stdout


def test_the_sample_of_a_wheel_is_copied_once_to_where_it_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = shutil.copytree(SAMPLE, tmp_path / "sample", ignore=shutil.ignore_patterns(".*"))
    monkeypatch.setattr("platformdirs.user_data_path", lambda name: tmp_path / "home" / name)
    for name in ("SAMPLE", "INSTALLED_SAMPLE"):
        monkeypatch.setattr(demo, name, installed)
    copy = demo.writable_sample()
    assert copy.parent == tmp_path / "home" / "mxd-explorer"
    assert (copy / "index.json").read_bytes() == (installed / "index.json").read_bytes()
    (copy / "mine").touch()
    assert demo.writable_sample() == copy
    assert (copy / "mine").exists()


def test_the_sample_of_a_checkout_stays_where_it_is() -> None:
    assert demo.writable_sample() == ROOT / "data" / "demo"
