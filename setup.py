"""Build steps that pyproject.toml cannot express: a wheel contains the built frontend and the demo's data."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.errors import SetupError

ROOT = Path(__file__).resolve().parent
COPIES = {"frontend/dist": "mxd/backend/built_frontend", "data/demo": "mxd/trainer/sample"}
"""Folder of a checkout -> folder in a wheel, where ``mxd.backend.settings`` and ``mxd.trainer.config`` look for it."""


class BuildWithData(build_py):
    """Copies the front end and the demo into the wheel. An editable install uses those of the checkout."""

    def run(self) -> None:
        """Build.

        Raises:
            SetupError: the front end has not been built.
        """
        super().run()
        if self.editable_mode:
            return
        if not (ROOT / "frontend/dist/index.html").is_file():
            raise SetupError("The front end has not been built. Run: make wheel")
        for source, target in COPIES.items():
            folder = Path(self.build_lib) / target
            shutil.rmtree(folder, ignore_errors=True)  # left over from an earlier build
            shutil.copytree(ROOT / source, folder, ignore=shutil.ignore_patterns(".*"))


setup(cmdclass={"build_py": BuildWithData})
