"""How much is tried: a few examples, always the same, in ``make test``; FUZZ_EXAMPLES many in ``make fuzz``."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

WANTED = os.environ.get("FUZZ_EXAMPLES")
SLOW_IS_FINE = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


def tried(few: int) -> settings:
    """Settings of a test that tries ``few`` examples where nobody asks for more."""
    return settings(
        max_examples=int(WANTED) if WANTED else few,
        derandomize=not WANTED,
        deadline=None,
        database=None,
        suppress_health_check=(*SLOW_IS_FINE, HealthCheck.function_scoped_fixture),
    )
