"""A build step that pyproject.toml cannot express: a wheel contains the built frontend."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.errors import SetupError

DIST = Path(__file__).resolve().parent / "frontend" / "dist"


class BuildWithFrontend(build_py):
    """Copies the frontend into the wheel, where ``mxd.backend.settings`` looks for it. Editable installs use theirs."""

    def run(self) -> None:
        """Build.

        Raises:
            SetupError: the frontend has not been built.
        """
        super().run()
        if self.editable_mode:
            return
        if not (DIST / "index.html").is_file():
            raise SetupError("The frontend has not been built. Run: make wheel")
        target = Path(self.build_lib) / "mxd" / "backend" / "built_frontend"
        shutil.rmtree(target, ignore_errors=True)  # left over from an earlier build
        shutil.copytree(DIST, target, ignore=shutil.ignore_patterns(".*"))


setup(cmdclass={"build_py": BuildWithFrontend})
