"""Rules about files that no linter checks: registries, local paths, and container files with minimal privileges."""

import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from mxd.backend.api.dependencies import needed_role
from mxd.backend.cli.commands.serve import ServeCommand
from mxd.backend.cli.parser import command_from

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
