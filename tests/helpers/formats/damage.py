"""Hypothesis strategies for damaged bytes: truncated, modified, with a part deleted or inserted."""

from __future__ import annotations

from hypothesis import strategies as st


@st.composite
def damaged(draw: st.DrawFn, sound: bytes) -> bytes:
    """Strategy for damaged versions of ``sound``."""
    kind = draw(st.sampled_from(["cut", "flip", "flip", "splice"]))
    at = draw(st.integers(0, max(0, len(sound) - 1)))
    if kind == "cut":
        return sound[:at]
    if kind == "splice":
        return sound[:at] + draw(st.binary(max_size=40)) + sound[at + draw(st.integers(0, 40)) :]
    changed = bytearray(sound)
    for place, bit in draw(st.lists(st.tuples(st.integers(0, max(0, len(sound) - 1)), st.integers(0, 7)), max_size=8)):
        if place < len(changed):
            changed[place] ^= 1 << bit
    return bytes(changed)
