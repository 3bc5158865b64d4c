"""Tables in notebooks are escaped, and errors about unknown names suggest one."""

from __future__ import annotations

from mxd.trainer.utils.display import html_table, labelled_values, suggest

NASTY = '<script>alert("x")</script>&\n'


def test_all_text_is_escaped() -> None:
    html = labelled_values([(NASTY, NASTY)]) + html_table([NASTY], [])
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 3
    assert '"x"' not in html


def test_the_nearest_name_is_suggested() -> None:
    assert suggest("stear", ["steer", "serve"]) == " Did you mean 'steer'?"
    assert suggest("xyz", ["steer", "serve"]) == ""
