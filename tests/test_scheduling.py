"""With two workers, the tests of a file run in one of them, and slow files start first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.helpers.processes import ROOT
from tests.helpers.scheduling import BROWSER, LONG, group_of

TESTS = "import pytest\n@pytest.mark.parametrize('number', range(6))\ndef test_it(number): pass\n"

CONFTEST = """
from tests.helpers.scheduling import ByFile
def pytest_xdist_make_scheduler(config, log): return ByFile(config, log)
"""


def test_each_file_has_one_worker_and_both_workers_have_files(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name in "abcd":
        (tmp_path / f"test_{name}.py").write_text(TESTS)
    words = ["-p", "xdist", "-n", "2", "-v", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", "."]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in finished.stdout.splitlines() if line.startswith("[gw")]
    assert len(lines) == 24, finished.stdout + finished.stderr
    ran = {(line.split("]")[0], group_of(line.split()[-1])) for line in lines}
    assert len(ran) == 4, "a worker and a file each"
    assert len({worker for worker, _ in ran}) == 2


def test_the_slowest_groups_exist_and_browser_tests_are_one_group() -> None:
    assert [path for path in LONG if not (ROOT / path).exists()] == []
    assert group_of("tests/browser/test_pages.py::test_a[b::c]") == group_of("tests/browser/x.py::test_a") == BROWSER
    assert group_of("tests/backend/test_x.py::test_a[tests/browser/]") == "tests/backend/test_x.py"
