"""Our benchmark gives the numbers of sae-probes' own entry point, and SAEBench reads our output."""

from __future__ import annotations

from pathlib import Path

from tests.interop.conftest import MXD, Table
from tests.interop.environments import Oracles

DATASET = "95_toxic_is"


def test_probes_equal_those_of_sae_probes(tmp_path: Path, oracles: Oracles, table: Table) -> None:
    found = oracles.ask("sae-probes", "probe_with_sae_probes", tmp_path, MXD, DATASET)
    assert found["compared"] == 6  # experts and neurons, three numbers of units
    assert found["other_units"] == 0
    assert found["difference"] == 0
    assert found["auc"] == found["expected_auc"]
    table.add("sae-probes", found["version"], "runs on the same activations", "equal scores and units")
    table.add("SAEBench", found["saebench"], "reads our benchmark", "valid, equal scores")
