"""Snapshots: nothing that a user typed becomes markup, colours are the dashboard's, files are of two kinds."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typing_extensions import override

from mxd.trainer.errors import UserError, check_overrides
from mxd.trainer.utils.display import html_table, labelled_values
from mxd.trainer.utils.snapshot import Block, Grid, Histogram, Lines, Origin, Pair, Snapshot, Table, Token

ROOT = Path(__file__).parents[3]
HOSTILE = (
    "<script>alert('x')</script><img src=x onerror=\"alert(1)\"> ```\n</style></pre> | `a` **b** [c](javascript:d) "
    "\x1b[31m"
)


def hostile() -> Snapshot:
    token = Token(HOSTILE, "s3", HOSTILE, peak=True, value=1.0)
    blocks: list[Block] = [
        Pair([(HOSTILE, [token])]),
        Lines(HOSTILE, [(HOSTILE, [token, Token(HOSTILE)])]),
        Table([HOSTILE], [[HOSTILE]]),
        Grid("heat", [token], [(HOSTILE, HOSTILE, {0: [token]})]),
        Histogram(HOSTILE, [0, 3], 1.0),
    ]
    origin = Origin(HOSTILE, {HOSTILE: HOSTILE}, {HOSTILE: 1}, HOSTILE)
    return Snapshot(HOSTILE, HOSTILE, blocks, [(HOSTILE, HOSTILE)], HOSTILE, origin)


class Elements(HTMLParser):
    """Names of elements and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_hostile_texts_stay_texts_in_html() -> None:
    snapshot = hostile()
    for page in (snapshot.html(), snapshot._repr_html_()):
        elements = Elements(page)
        assert not elements.tags & {"script", "img", "iframe", "a", "link"}
        assert not any(name.startswith("on") or name in ("src", "href") for name in elements.attributes)
        assert page.count("</style>") == 1
        assert "\x1b" not in page


def test_hostile_texts_stay_texts_in_markdown() -> None:
    markdown = hostile().markdown()
    body, fence, command = markdown.rpartition("\n\n````sh\n")
    assert fence
    assert command.endswith("\n````\n")  # longer than the fence in the text
    assert "<" not in body
    assert not re.search(r"(?<!\\)\]\(", body)  # no link
    tables = [line for line in body.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in tables} <= {2, 3}


def test_a_page_loads_nothing() -> None:
    origin = Origin("gpt2", {"l8": "abc123"}, {"training": 3}, "mxd route l8 'One day'")
    page = Snapshot("Title", "Subtitle", [Pair([("Text", [Token(" a", "u2", "tip")])])], origin=origin).html()
    assert "default-src 'none'" in page
    assert not re.search(r"url\(|https?://|@import", page)
    assert ' <span class="t u2" tabindex="0" data-tip="tip">a' in page and "seed of training" in page


def test_files_are_html_or_markdown(tmp_path: Path) -> None:
    snapshot = Snapshot("Title", "", [])
    assert snapshot.save(tmp_path / "new" / "page.html").read_text("utf-8") == snapshot.html()
    assert snapshot.save(tmp_path / "page.md").read_text("utf-8") == snapshot.markdown()
    with pytest.raises(UserError, match=r"'.*page\.pdf'\. Supported file types: \.html, \.md"):
        snapshot.save(tmp_path / "page.pdf")


NASTY = '<script>alert("x")</script>&\n'


def test_all_text_is_escaped() -> None:
    html = labelled_values([(NASTY, NASTY)]) + html_table([NASTY], [])
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 3
    assert '"x"' not in html


def test_overrides_are_checked() -> None:
    @check_overrides
    class Fine(HTMLParser):
        @override
        def handle_data(self, data: str) -> None:
            """Whatever it is."""

    with pytest.raises(UserError, match="HTMLParser of the installed html has no renamed"):

        @check_overrides
        class Broken(HTMLParser):
            @override
            def renamed(self) -> int:  # type: ignore[misc]  # what the check is for
                return 1
