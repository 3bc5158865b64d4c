"""Tokens as HTML: escaped, without script, strongest where the number is largest."""

from __future__ import annotations

import re

from trainer.highlighting import DENSEST, LESS, Shaded, figures, rows, shaded_text

NASTY = '<script>alert("x")</script>&\n'


def opacities(html: str) -> list[float]:
    return [float(found) for found in re.findall(r"rgba\(\d+,\d+,\d+,([\d.]+)\)", html)]


def test_whatever_a_token_holds_is_text() -> None:
    html = shaded_text([Shaded(NASTY, 0.5, NASTY)]) + figures([(NASTY, NASTY)]) + rows([NASTY], [])
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 5
    assert '"x"' not in html
    assert "⏎\n" in html


def test_shades_follow_the_number_and_stay_readable() -> None:
    html = shaded_text([Shaded("a", value) for value in (0.0, 0.5, 1.0, 7.0)])
    assert opacities(html) == [0.0, DENSEST / 2, DENSEST, DENSEST]


def test_below_zero_the_colour_is_another() -> None:
    html = shaded_text([Shaded("a", -1.0)])
    assert "rgba({},{},{},0.60)".format(*LESS) in html


def test_the_peak_is_not_marked_by_colour_alone() -> None:
    plain, peak = (shaded_text([Shaded("a", 1.0, "", is_peak)]) for is_peak in (False, True))
    assert "outline" not in plain
    assert "outline" in peak
