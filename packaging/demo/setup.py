"""Puts the demo's files, which are outside this folder, into the package."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"


class BuildWithData(build_py):
    """Copies ``data/demo`` of the checkout. Hidden files are left out: unpacked databases and locks."""

    def run(self) -> None:
        """Build."""
        super().run()
        target = Path(self.build_lib) / "mxd_demo" / "data"
        shutil.rmtree(target, ignore_errors=True)  # left over from an earlier build
        shutil.copytree(DEMO, target, ignore=shutil.ignore_patterns(".*"))


setup(cmdclass={"build_py": BuildWithData})
