"""Wilson's interval of a share."""

from math import sqrt

NORMAL_97_5 = 1.959964


def wilson_interval(share: float, trials: int) -> tuple[float, float]:
    """95 % Wilson interval of a share, which is not empty at 0 and 1."""
    z2 = NORMAL_97_5**2
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = NORMAL_97_5 / (1 + z2 / trials) * sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    # At 0 and 1 rounding could leave the share outside.
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))
