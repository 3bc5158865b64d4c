"""Wilson's interval."""

import pytest

from mxd.trainer.utils.bootstrap import wilson_interval


def test_the_interval_is_not_empty_at_the_ends() -> None:
    low, high = wilson_interval(1.0, 8)
    assert 0.6 < low < 0.7 and high == 1
    low, high = wilson_interval(0.0, 32)
    assert low == 0 and high == pytest.approx(0.107, abs=0.001)
    assert wilson_interval(0.5, 100)[0] == pytest.approx(0.404, abs=0.002)
