"""Environments of the peers: each adds one package, and what that needs, to the environment of this project.

All participants therefore run on the same torch and transformers. Delete the folder to make the environments again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from mxd.trainer.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS: Mapping[str, Path] = {
    "nnsight": Path(__file__).with_name("requirements-nnsight.txt"),
    "sae-lens": ROOT / "tests" / "interop" / "requirements-saelens.txt",
    "sparsify": ROOT / "tests" / "interop" / "requirements-sparsify.txt",
}
"""Environment -> its pinned packages, which are installed without their dependencies."""


def environment(name: str, folder: Path) -> Path:
    """Return the Python of an environment, which is made on first use.

    Raises:
        UserError: the packages cannot be installed. This needs a package registry.
    """
    requirements = REQUIREMENTS[name]
    target = folder / name
    python, complete = target / "bin" / "python", target / ".complete"
    if complete.is_file() and complete.read_text() == requirements.read_text():
        return python
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(target)], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = target / "lib" / version / "site-packages"
    (packages / "main.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-qq", "--no-deps"]
    if subprocess.run([*pip, "-r", str(requirements)], check=False).returncode:
        raise UserError(f"The packages of {name} cannot be installed. Check the network, or omit it from --peers.")
    complete.write_text(requirements.read_text())
    return python
