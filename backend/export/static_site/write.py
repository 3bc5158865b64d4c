"""A whole run as a static read-only site: browse, search, and a page per expert, without a server.

Numbers and examples are JSON in ``data``, some experts per file; ``site.js`` shows them. A data file is a script that
calls ``put``, so that the site also opens from a folder. The index of words leads from a word to the experts whose
examples contain it; it is split by first character.
"""

from __future__ import annotations

import html
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import Session

from mxd.backend.export.snapshots import origin_of
from mxd.backend.queries.runs import card_figures
from mxd.backend.schemas.experts import Column
from mxd.trainer.analysis.expert import TOKENS_AROUND_PEAK
from mxd.trainer.storage.database.expert_columns import EXPERT_COLUMNS, NUMERIC
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.snapshot import CSS

if TYPE_CHECKING:
    from mxd.backend.export.tables import Chunk, Exported, Row

ASSETS = Path(__file__).parent
EXPERTS_PER_FILE = 64
EXAMPLES, EXAMPLES_OF_LARGE = 20, 5
LARGE = 8192
"""Number of experts from which the site has fewer examples of each, because browsers and hosts limit its size."""
DIGITS = 7
COLUMNS = [column for column in EXPERT_COLUMNS if column.kind in NUMERIC and {"table", "expert"} & set(column.shown)]
_WORD = re.compile(r"[^\W_]+")


def write_site(session: Session, exported: Exported, run: Run, read: Iterator[Chunk], folder: Path) -> None:
    (folder / "data").mkdir()
    most = EXAMPLES if exported.run.num_experts < LARGE else EXAMPLES_OF_LARGE
    rows: list[Row] = []
    words: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for chunk in read:
        rows += map(_row, chunk.experts)
        details = _details(chunk, most)
        for first in range(0, len(chunk.experts), EXPERTS_PER_FILE):
            experts = [row["expert"] for row in chunk.experts[first : first + EXPERTS_PER_FILE]]
            name = f"experts-{experts[0] // EXPERTS_PER_FILE}"
            _write(folder, name, {expert: details[expert] for expert in experts})
        for expert, detail in details.items():
            texts = ("".join(it if isinstance(it, str) else it[0] for it in parts) for _, parts in detail["examples"])
            for word in {word for text in texts for word in _WORD.findall(text.lower())}:
                words[word[0] if word[0].isascii() else "other"][word].append(expert)
    for first_character, index in words.items():
        _write(folder, f"words-{first_character}", index)
    origin = origin_of(session, [run], {}, ["mxd", "export", run.name, "--format", "site", "--out", f"{run.name}-site"])
    figures = [("language model", origin.model), ("layer", str(run.config.layer)), ("method", run.config.method)]
    table = {
        "run": run.name,
        "perShard": EXPERTS_PER_FILE,
        "columns": [Column.of(column).model_dump() for column in COLUMNS],
        "figures": [
            *figures,
            ("indexed tokens", f"{exported.index.tokens:,}"),
            *card_figures(session, run.name).items(),
        ],
        "rows": rows,
    }
    (folder / "data" / "table.js").write_text(f"window.SITE = {_json(table)};\n", "utf-8")
    footer = " · ".join(f"{name} {value}" for name, value in (*origin.facts(), ("made with", "MxD Explorer")))
    page = (ASSETS / "index.html").read_text("utf-8")
    page = page.replace("{title}", html.escape(run.name)).replace("{footer}", html.escape(footer))
    (folder / "index.html").write_text(page, "utf-8")
    (folder / "site.js").write_text((ASSETS / "site.js").read_text("utf-8"), "utf-8")
    (folder / "site.css").write_text(CSS + (ASSETS / "site.css").read_text("utf-8"), "utf-8")


def _row(row: Row) -> Row:
    automatic = row["automatic"]
    return {column.key: _short(row[column.key]) for column in COLUMNS} | {
        "expert": row["expert"],
        "label": row["label"],
        "automatic": automatic and automatic["label"],
        "clear": bool(automatic and automatic["is_clear"]),
        "tokens": [token["text"] for token in row["top_tokens"]],
    }


def _details(chunk: Chunk, most: int) -> dict[int, Row]:
    details = {}
    for row, examples, effects in chunk.entries():
        top = [example for example in examples if example["bin"] == 0][:most]
        details[row["expert"]] = {
            "examples": [(_short(example["activation"]), _parts(example)) for example in top],
            "histogram": row["histogram"],
            "high": row["histogram_high"],
            **{side: [(token, round(change, 2)) for token, change in its] for side, its in effects.items()},
        }
    return details


def _parts(example: Row) -> list[Any]:
    """Text around the peak: inactive tokens joined, and [text, activation] of each active one, the peak with a 1."""
    peak, tokens = example["position"], example["tokens"]
    active = {position: activation for position, activation, _ in example["active"]}
    parts: list[Any] = []
    for position in range(max(0, peak - TOKENS_AROUND_PEAK), min(len(tokens), peak + TOKENS_AROUND_PEAK + 1)):
        text = tokens[position] if parts else tokens[position].lstrip(" ")
        if position in active:
            parts.append([text, round(active[position], 4), *([1] if position == peak else [])])
        elif parts and isinstance(parts[-1], str):
            parts[-1] += text
        else:
            parts.append(text)
    return parts


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")


def _write(folder: Path, name: str, data: Any) -> None:
    (folder / "data" / f"{name}.js").write_text(f"put({_json(name)}, {_json(data)});\n", "utf-8")


def _json(data: Any) -> str:
    """Return JSON, which is also JavaScript. In a file, unlike in a script element, ``</script>`` needs no escaping."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))
