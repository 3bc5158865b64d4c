"""Environments of other packages: each adds pinned packages to the environment of this project.

All of them therefore run on the same torch and transformers. ``make interop`` uses the same environments. Delete the
folder to make them again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from hashlib import blake2b
from pathlib import Path

from filelock import FileLock

from mxd.trainer.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / ".interop"
"""Default folder of the environments."""


def environment(name: str, folder: Path = ENVIRONMENTS) -> Path:
    """Return the Python of an environment, which is made on first use.

    Args:
        name: ``NAME`` of ``tests/interop/requirements-NAME.txt``, whose packages are installed without dependencies.
        folder: folder of all environments.

    Raises:
        UserError: the packages cannot be installed. This needs a package registry.
    """
    requirements = ROOT / "tests" / "interop" / f"requirements-{name}.txt"
    target = folder / f"{name}-{blake2b(requirements.read_bytes(), digest_size=4).hexdigest()}"
    python = target / "bin" / "python"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if not (target / ".complete").is_file():
            _make(target, requirements)
    return python


def _make(target: Path, requirements: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(target)], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = target / "lib" / version / "site-packages"
    (packages / "main.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "-qq",
        "--disable-pip-version-check",
        "--python",
        str(target / "bin" / "python"),
    ]
    if subprocess.run([*pip, "install", "--no-deps", "-r", str(requirements)], check=False).returncode:
        raise UserError(f"The packages of {requirements.name} cannot be installed. Check the network connection.")
    (target / ".complete").touch()
