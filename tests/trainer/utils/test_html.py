"""Token HTML: escaping, opacity, colours, outline."""

from __future__ import annotations

import re

from mxd.trainer.utils.display import LOWER, MAX_OPACITY, ShadedToken, html_table, labelled_values, shaded_text

NASTY = '<script>alert("x")</script>&\n'


def opacities(html: str) -> list[float]:
    return [float(value) for value in re.findall(r"rgba\(\d+,\d+,\d+,([\d.]+)\)", html)]


def test_all_text_is_escaped() -> None:
    html = shaded_text([ShadedToken(NASTY, 0.5, NASTY)]) + labelled_values([(NASTY, NASTY)]) + html_table([NASTY], [])
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 5
    assert '"x"' not in html
    assert "⏎\n" in html


def test_opacity_follows_the_strength_up_to_its_maximum() -> None:
    html = shaded_text([ShadedToken("a", value) for value in (0.0, 0.5, 1.0, 7.0)])
    assert opacities(html) == [0.0, MAX_OPACITY / 2, MAX_OPACITY, MAX_OPACITY]


def test_negative_strengths_have_another_colour() -> None:
    html = shaded_text([ShadedToken("a", -1.0)])
    assert "rgba({},{},{},0.60)".format(*LOWER) in html


def test_the_peak_has_an_outline() -> None:
    plain, peak = (shaded_text([ShadedToken("a", 1.0, "", is_peak)]) for is_peak in (False, True))
    assert "outline" not in plain
    assert "outline" in peak
