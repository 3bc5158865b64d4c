"""Number of Hypothesis examples: a few fixed ones in ``make test``, FUZZ_EXAMPLES in ``make fuzz``."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

WANTED = os.environ.get("FUZZ_EXAMPLES")
SLOW_IS_FINE = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


def tried(few: int) -> settings:
    """Hypothesis settings that try ``few`` examples unless FUZZ_EXAMPLES is set."""
    return settings(
        max_examples=int(WANTED) if WANTED else few,
        derandomize=not WANTED,
        deadline=None,
        database=None,
        suppress_health_check=(*SLOW_IS_FINE, HealthCheck.function_scoped_fixture),
    )
