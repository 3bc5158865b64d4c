"""Verdict on a checked circuit: its sentence, its figures, and the limits of its words. They are conventions."""

from mxd.trainer.analysis.circuits.graph import (
    AblationEffect,
    Agreement,
    Circuit,
    CircuitVerdict,
    GraphScores,
    Sufficiency,
)
from mxd.trainer.utils.display import fixed, signed

DEGREES = ((0.8, ""), (0.5, "mostly "), (0.25, "partly "))
"""Least share of what all experts add to the target, and the word before "sufficient" or "necessary"."""
HELD = 0.9, 0.8
ROUGHLY_HELD = 0.6, 0.65
"""Least correlation and share of equal signs at which predictions hold, or hold roughly."""
CHANCE_SDS = 2
"""Standard deviations above the mean of random sets from which experts do more than those."""
SMALLEST_WHOLE = 0.05
"""Smallest change by all experts, in units of the target, whose shares are stated."""
LIMITS = (
    "Kept alone: all other experts are mean-ablated. Necessary is the share that is lost without the shown experts. "
    + ", ".join(f"{degree}sufficient or necessary from {share:.0%}" for share, degree in DEGREES).capitalize()
    + f"; never sufficient below random experts plus {CHANCE_SDS} SD. Predictions hold from r = {HELD[0]} and "
    f"{HELD[1]:.0%} in the predicted direction, roughly from {ROUGHLY_HELD[0]} and {ROUGHLY_HELD[1]:.0%}."
).replace("%", "\N{NO-BREAK SPACE}%")
AMOUNTS = {"": "most", "mostly ": "half or more", "partly ": "part", "not ": "little"}
"""How much of what all experts add to the target is kept or lost, by degree."""
NOUNS = {"token": "logit", "difference": "difference of the logits", "expert": "activation"}


def verdict_of(
    circuit: Circuit,
    experts: Agreement,
    between: Agreement,
    joint: AblationEffect,
    sufficiency: Sufficiency,
    scores: GraphScores,
) -> CircuitVerdict:
    """Judge the measurements of a circuit."""
    base, shown = sufficiency.without_experts, experts.count
    whole = circuit.value - base
    scale = whole or 1.0
    kept, lost = (sufficiency.mean - base) / scale, -joint.measured / scale
    random, deviation = (sufficiency.control - base) / scale, sufficiency.control_sd / abs(scale)
    is_beyond_chance = kept > random + CHANCE_SDS * deviation
    has_shares = abs(whole) >= SMALLEST_WHOLE
    r, same = experts.correlation or 0.0, experts.same_sign or 0.0
    holds, holds_roughly = (r >= limits[0] and same >= limits[1] for limits in (HELD, ROUGHLY_HELD))
    noun = NOUNS.get(circuit.target.kind, "log-probability")
    parts = []
    headline = f"All {circuit.active:,} active experts hardly change the {circuit.label}: there is little to explain."
    if has_shares:
        degree = _degree(kept if is_beyond_chance else 0.0)
        alone = f"carry {AMOUNTS[degree]} of it"
        if kept < 0:
            alone = f"{'lower' if whole > 0 else 'raise'} the {noun}"
        elif not is_beyond_chance:
            alone = "do no more than random ones"
        explain = f"{degree.replace('not', 'do not')}explain"
        headline = (
            f"These {shown} experts {explain} what all {circuit.active:,} add to the {circuit.label}: "
            f"alone they {alone}, and without them {AMOUNTS[_degree(lost)]} is lost."
        )
        words = f"{degree}sufficient, {_degree(lost)}necessary".capitalize()
        parts.append(
            f"{words}: kept alone, {shown} experts carry {_percent(kept)} of the {signed(whole)} that all "
            f"{circuit.active:,} active ones add to the {noun} ({shown} random ones {_percent(random)} ± "
            f"{fixed(100 * deviation, 0)}); without the {shown}, {_percent(1 - lost)} remains."
        )
    else:
        parts.append(f"All {circuit.active:,} active experts change the {noun} by only {signed(whole)}: no shares.")
    if not holds:
        advice = "The predictions hold only roughly" if holds_roughly else "Do not rely on the predictions"
        parts.append(f"{advice}: {_correlation(experts)}, {_percent(same)} in the predicted direction.")
    tokens = _percent(scores.replacement)
    parts.append(f"Replacement score {fixed(scores.replacement, 2)}: {tokens} of the influence starts at tokens.")
    good = holds and has_shares and is_beyond_chance and kept >= DEGREES[1][0]
    draws = sufficiency.draws
    control = f"{signed(sufficiency.control - base)} ± {fixed(sufficiency.control_sd, 2)}"
    each = f"direction of {shown}; {_correlation(experts)}, largest miss {fixed(experts.largest_miss or 0.0, 2)}"
    mean, worst = (_percent((it - base) / scale) for it in (sufficiency.random_mean, sufficiency.random_worst))
    figures = (
        (
            "Kept alone",
            signed(sufficiency.mean - base),
            f"of {signed(whole)}; random ones {control} (SD of {draws} sets)",
        ),
        ("Ablated together", signed(joint.measured), f"sum of the predictions {signed(joint.predicted)}"),
        ("Completeness", fixed(scores.completeness, 2), "share of the inputs that are not errors"),
        ("Single experts", f"{_percent(same)} as predicted", each),
        ("Edges", _correlation(between), f"{between.count} between experts"),
        ("Others at random strengths", mean, f"worst of {draws} draws {worst}"),
    )
    return CircuitVerdict(
        "good" if good else "weak" if holds_roughly else "bad", headline, " ".join(parts), figures, LIMITS
    )


def _degree(share: float) -> str:
    return next((word for least, word in DEGREES if share >= least), "not ")


def _percent(share: float) -> str:
    return f"{fixed(100 * share, 0)}\N{NO-BREAK SPACE}%"


def _correlation(found: Agreement) -> str:
    return "too few for r" if found.correlation is None else f"r = {fixed(found.correlation, 2)}"
