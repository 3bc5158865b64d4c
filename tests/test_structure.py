"""Packages: no registries or local paths, containers with few privileges, and the wheel without a checkout."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from mxd.backend.api.dependencies import needed_role
from mxd.backend.cli.commands.serve import ServeCommand
from mxd.backend.cli.parser import command_from
from mxd.backend.database import demo
from mxd.trainer.config.base import SAMPLE

ROOT = Path(__file__).parent.parent
# In pieces, so that this file does not match itself.
REGISTRY = "|".join([r'"resol' + 'ved"', "index" + "-url", r"://[\w.]*regis" + "try", "python" + r"hosted\."])


def tracked() -> list[Path]:
    """Files under version control, relative to the root, except deleted ones."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [Path(name) for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_names_a_package_registry_or_a_path_of_this_machine() -> None:
    places = {str(ROOT), str(ROOT.parent), str(Path.home())} - {tempfile.gettempdir(), "/"}
    path_of_this_machine = "|".join(rf"(?<![\w.]){re.escape(place)}/" for place in sorted(places))
    forbidden = re.compile(f"{REGISTRY}|{path_of_this_machine}")
    for path in tracked():
        content = (ROOT / path).read_bytes()
        is_text = b"\0" not in content[:8192]
        if is_text and not path.is_relative_to("data/demo") and not path.is_relative_to("tests/demo"):
            assert forbidden.search(content.decode("utf-8", errors="replace")) is None, path


DOCKERFILES = ("Dockerfile", "Dockerfile.trainer")
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
VOLUMES = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["volumes"]
PINNED = re.compile(r"[\w/-]+:\d+\.\d+[\w.-]*$")


@pytest.mark.parametrize("name", SERVICES)
def test_containers_have_minimal_privileges_limits_and_no_secrets(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    assert "build" in service or (PINNED.match(service["image"]) and service["user"] not in ("root", "0"))
    for volume in service["volumes"]:
        source = volume.split(":")[0]
        assert source in VOLUMES or volume.endswith(":ro")
    assert re.fullmatch(r"\d+g|\$\{\w+:-\d+g\}", service["mem_limit"])
    assert service["pids_limit"] <= 4096
    assert all(place.startswith("/var/run") or "size=" in place for place in service["tmpfs"])
    for variable, value in service["environment"].items():
        if re.search("TOKEN|PASSWORD|SECRET", variable):
            assert value is None or re.fullmatch(r"\$\{\w+:-\}", value)
    assert "restart" not in service or "healthcheck" in service


def test_the_app_starts_with_a_valid_command_and_its_health_check_is_public() -> None:
    asked = re.search(r"http://127\.0\.0\.1:8000(/\S*?)'", SERVICES["app"]["healthcheck"]["test"][-1])
    assert asked is not None
    assert needed_role("GET", asked.group(1)) is None
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    command = command_from(json.loads(next(line for line in lines if line.startswith("CMD")).removeprefix("CMD")))
    assert isinstance(command, ServeCommand)
    assert command.flags == {"host": "0.0.0.0", "port": "8000"}


@pytest.mark.parametrize("name", DOCKERFILES)
def test_images_run_unprivileged_on_existing_files_and_write_to_volumes(name: str) -> None:
    text = (ROOT / name).read_text("utf-8").replace("\\\n", " ")
    folders = dict(re.findall(r"(\w+)=(/\S+)", " ".join(re.findall(r"^ENV (.*)$", text, re.MULTILINE))))
    written = {"MXD_DATA", "XDG_DATA_HOME", "XDG_CACHE_HOME", "MXD_CACHE", "HF_HOME", "TRITON_CACHE_DIR"}
    assert written <= folders.keys()
    mounted = [volume.split(":")[1] for volume in SERVICES["app"]["volumes"] if not volume.endswith(":ro")]
    assert SERVICES["trainer"]["volumes"] == SERVICES["app"]["volumes"]
    made = next(line for line in text.splitlines() if "install --directory --owner=mxd" in line)
    for folder in folders.values():
        assert any(Path(folder).is_relative_to(place) for place in mounted), folder
    assert all(place in made.split() for place in mounted), "a volume takes its owner from the image"
    lines = [line.split() for line in text.splitlines()]
    assert all(PINNED.match(words[1]) for words in lines if words[:1] == ["FROM"])
    for words in lines:
        if words[:1] == ["COPY"] and not words[1].startswith("--from"):
            assert all((ROOT / source).exists() for source in words[1:-1]), words
    assert [words[1] for words in lines if words[:1] == ["USER"]] == ["mxd"]
    assert "-c constraints.txt" in text


SOURCES = ("mxd", "trainer", "backend", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")
FRONTEND = {"index.html": "<title>MxD Explorer</title>", "assets/index-1a2b.js": "go()", "assets/index-1a2b.js.gz": "z"}


def copy_checkout(folder: Path) -> Path:
    """Copy the tracked files that a wheel is built from into ``folder``."""
    for path in tracked():
        if any(path.is_relative_to(part) for part in SOURCES):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, target, follow_symlinks=False)
    for name in ("trainer", "backend"):
        (folder / "mxd" / name).symlink_to(f"../{name}")
    return folder


def built_wheel(folder: Path) -> Path:
    """Run ``pip wheel`` in ``folder`` with the build tools of this environment. Returns the unpacked wheel."""
    words = ["pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", "made"]
    built = subprocess.run([sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr + built.stdout
    (wheel,) = (folder / "made").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "unpacked")
    return folder / "unpacked"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unpacked wheel with a placeholder front end, because Python tests do not need Node."""
    source = copy_checkout(tmp_path_factory.mktemp("checkout"))
    for name, content in FRONTEND.items():
        path = source / "frontend" / "dist" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return built_wheel(source)


def run_python(folder: Path, *words: str, packages: tuple[Path, ...]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, packages))}
    call = [sys.executable, *words]
    return subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120)


def test_a_wheel_has_the_front_end_and_nothing_heavy(unpacked: Path) -> None:
    front_end = unpacked / "mxd" / "backend" / "built_frontend"
    assert {name: (front_end / name).read_text() for name in FRONTEND} == FRONTEND
    assert sum(path.stat().st_size for path in unpacked.rglob("*") if path.is_file()) < 5_000_000


def test_the_demo_is_a_package_of_its_own(unpacked: Path, tmp_path: Path) -> None:
    said = run_python(tmp_path, "-m", "mxd", "demo", "--port", "0", packages=(unpacked,))
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr == "mxd: The demo is a package of its own. Run: pip install mxd-explorer-demo\n"
    shutil.copytree(ROOT / "packaging", tmp_path / "packaging", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    demo_files = {"database.sqlite.xz": "packed", "runs/a/run.json": "{}", ".demo-1.sqlite": "unpacked"}
    for name, content in demo_files.items():
        path = tmp_path / "data" / "demo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    installed = built_wheel(tmp_path / "packaging" / "demo")
    data = installed / "mxd_demo" / "data"
    assert {str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()} == set(list(demo_files)[:2])
    code = "from mxd.trainer.config.base import SAMPLE; print(SAMPLE)"
    said = run_python(tmp_path, "-c", code, packages=(unpacked, installed))
    assert Path(said.stdout.strip()) == data, said.stderr


def test_a_wheel_has_every_module_below_mxd_and_nothing_else(unpacked: Path) -> None:
    python = [path for path in tracked() if path.suffix == ".py"]
    expected = {Path("mxd") / path for path in python if path.parts[0] in ("trainer", "backend")}
    expected |= {path for path in python if path.parts[0] == "mxd"}
    assert {path.relative_to(unpacked) for path in unpacked.rglob("*.py")} == expected
    folders = {path.name for path in unpacked.iterdir()}
    assert {name for name in folders if not name.endswith(".dist-info")} == {"mxd"}
    assert (unpacked / "mxd" / "py.typed").exists()


def test_the_wheel_works_beside_modules_called_trainer_and_backend(unpacked: Path, tmp_path: Path) -> None:
    for name in ("trainer", "backend"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('imported the module of the user')\n")
    code = "import mxd.backend.cli.main as cli, mxd.backend.settings as settings"
    code += "; print(settings.Settings().frontend); cli.run(['runs', '--json'])"
    said = run_python(tmp_path, "-c", code, packages=(unpacked,))
    assert said.stdout.splitlines() == [str(unpacked / "mxd" / "backend" / "built_frontend"), "[]"], said.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"trainer.py", "backend.py"}


def test_without_a_front_end_there_is_no_wheel(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"The frontend has not been built\. Run: make wheel"):
        built_wheel(copy_checkout(tmp_path))


def test_an_installed_demo_is_copied_once_to_a_writable_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = shutil.copytree(SAMPLE, tmp_path / "sample", ignore=shutil.ignore_patterns(".*"))
    monkeypatch.setattr("platformdirs.user_data_path", lambda name: tmp_path / "home" / name)
    for name in ("SAMPLE", "INSTALLED_SAMPLE"):
        monkeypatch.setattr(demo, name, installed)
    copy = demo.writable_demo()
    assert copy.parent == tmp_path / "home" / "mxd-explorer"
    assert (copy / "database.sqlite.xz").read_bytes() == (installed / "database.sqlite.xz").read_bytes()
    (copy / "mine").touch()
    assert demo.writable_demo() == copy
    assert (copy / "mine").exists()
