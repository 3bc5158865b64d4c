"""What pyproject.toml cannot say: a wheel takes the built front end and the sample into the packages that use them."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.errors import SetupError

ROOT = Path(__file__).resolve().parent
TAKEN = {"frontend/dist": "backend/built_frontend", "data/demo": "trainer/sample"}
"""Folder of a checkout -> where a wheel has it; ``backend.settings`` and ``trainer.config`` look there."""


class BuildWhole(build_py):
    """Builds the packages with what is shipped in them. An editable install finds it in the checkout."""

    def run(self) -> None:
        """Build.

        Raises:
            SetupError: the front end has not been built.
        """
        super().run()
        if self.editable_mode:
            return
        if not (ROOT / "frontend/dist/index.html").is_file():
            raise SetupError("The front end has not been built; run make wheel, which builds it first.")
        for source, target in TAKEN.items():
            folder = Path(self.build_lib) / target
            shutil.rmtree(folder, ignore_errors=True)  # what an earlier build left there
            shutil.copytree(ROOT / source, folder, ignore=shutil.ignore_patterns(".*"))


setup(cmdclass={"build_py": BuildWhole})
