"""The cluster plan, and the page that shows it."""

from __future__ import annotations

import pytest

from scripts.cluster_plan import LANGUAGE_MODEL, lines, plan_of
from tests.helpers.processes import ROOT


def test_parameter_count_of_a_70b_model() -> None:
    assert LANGUAGE_MODEL.parameters == pytest.approx(70.55e9, rel=1e-3)
    assert LANGUAGE_MODEL.used_parameters(79) < LANGUAGE_MODEL.parameters


def test_more_devices_take_less_time_with_the_same_memory_each() -> None:
    few, many = plan_of(8), plan_of(64)
    assert many.tokens_per_second == pytest.approx(8 * few.tokens_per_second)
    assert many.bytes == few.bytes
    assert few.layer_network_seconds == 0 < many.layer_network_seconds


def test_the_page_on_large_models_has_the_figures() -> None:
    page = (ROOT / "docs" / "large-models.md").read_text("utf-8")
    assert [line for line in lines() if line not in page] == []
