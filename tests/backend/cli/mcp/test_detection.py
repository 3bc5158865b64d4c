"""Largest activations on a text."""

from __future__ import annotations

from mxd.backend.cli.mcp.tools import peak_activations


def test_peaks_exclude_the_start_token() -> None:
    tokens = [
        {"start": True, "experts": [{"expert": 3, "activation": 9.0}]},
        {"start": False, "experts": [{"expert": 3, "activation": 0.5}, {"expert": 4, "activation": 0.2}]},
        {"start": False, "experts": [{"expert": 3, "activation": 0.7}]},
    ]
    assert peak_activations({"tokens": tokens}) == {3: 0.7, 4: 0.2}
