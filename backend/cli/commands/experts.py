"""``mxd experts`` and ``mxd expert``: the experts of an indexed run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from mxd.backend.cli.base import Command, Positional
from mxd.backend.cli.console import columns
from mxd.backend.cli.databases import existing_database
from mxd.backend.schemas.experts import ExpertDetail, ExpertSort, Order

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from mxd.backend.inference.run_loader import Vocabulary
    from mxd.backend.queries.run_cache import BrowsedRun

HEADER = ("expert", "label", "top tokens", "density", "max. activation", "loss increase", "found again")
TEXT_COLUMNS = 3
MAX_LABEL = 40
MAX_TOKENS_SHOWN = 4
PAGE_ROWS = 200
WINDOW = 12
"""Tokens shown on either side of the strongest one in a top example."""


class ExpertsCommand(Command):
    """List the experts of an indexed run, sorted or searched. 'mxd steer --edit' uses the same ids."""

    examples: ClassVar = (
        "mxd experts gpt2-l8-k32",
        "mxd experts gpt2-l8-k32 --sort recurrence --min-recurrence 2 --limit 50",
        "mxd experts gpt2-l8-k32 --search capital --json",
    )

    name: Positional[str]
    """Name of the run."""
    sort: ExpertSort = "max_activation"
    """Column to sort by. loss_increase, kl_amplified, output_share and input_dependence require 'mxd ablate',
    recurrence requires 'mxd recurrence'."""
    order: Order | None = None
    """Sort order (default: desc, or asc for expert and label)."""
    search: Annotated[str, Field(max_length=200)] | None = None
    """Only experts with these words in a label, among their top tokens or in a top example."""
    tag: Annotated[str, Field(max_length=60)] | None = None
    """Only experts with this tag."""
    min_recurrence: Annotated[int, Field(ge=0)] | None = None
    """Only experts that 'mxd recurrence' found again in at least this many other runs."""
    limit: Annotated[int, Field(ge=1, le=100_000)] = 20
    """Maximum number of experts."""

    def run(self) -> int:
        """Print one row per expert."""
        settings = self.settings()
        with existing_database(settings) as database:
            page = self._page(database, *_browse(self, database))
        rows = [_cells(row) for row in page["experts"]]
        text = [*columns(HEADER, rows, TEXT_COLUMNS), f"{len(rows):,} of {page['matching']:,} matching experts shown."]
        self.report(page, "\n".join(text) if rows else f"No expert of run '{self.name}' matches.")
        return 0

    def _page(self, database: Engine, browsed: BrowsedRun, vocabulary: Vocabulary) -> dict[str, Any]:
        """Return up to ``limit`` rows, and the numbers of matching experts and of all."""
        import numpy as np

        from mxd.backend.queries.expert_page import expert_page
        from mxd.backend.queries.experts import ExpertQuery
        from mxd.backend.queries.search import find_experts

        order = self.order or ("asc" if self.sort in ("expert", "label") else "desc")
        selected = []
        if self.search:
            selected.append(find_experts(database, browsed, self.search, vocabulary))
        if self.tag is not None:
            selected.append(np.array([expert for expert, tags in browsed.tags.items() if self.tag in tags], np.int64))
        experts: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            limit = min(PAGE_ROWS, self.limit - len(experts))
            query = ExpertQuery(
                sort=self.sort, order=order, min_recurrence=self.min_recurrence, cursor=cursor, limit=limit
            )
            page = expert_page(browsed, query, selected, vocabulary)
            experts += page["experts"]
            cursor = page["next_cursor"]
            if cursor is None or len(experts) >= self.limit:
                return {"run": self.name, "experts": experts, "matching": page["matching"], "total": page["total"]}


class ExpertCommand(Command):
    """Show one expert: label, statistics, top tokens and top examples."""

    examples: ClassVar = (
        "mxd expert gpt2-l8-k32 1027",
        "mxd expert gpt2-l8-k32 1027 --examples 20",
        "mxd expert gpt2-l8-k32 1027 --json",
    )

    name: Positional[str]
    """Name of the run."""
    expert: Positional[Annotated[int, Field(ge=0)]]
    """Id of the expert."""
    examples_shown: Annotated[int, Field(ge=0, le=100, alias="examples")] = 5
    """Number of top examples."""

    def run(self) -> int:
        """Print the expert."""
        from mxd.backend.database.engine import reading
        from mxd.backend.queries.examples import ExampleQuery, example_page
        from mxd.backend.queries.expert_detail import expert_detail

        with existing_database(self.settings()) as database:
            browsed, vocabulary = _browse(self, database)
            browsed.place(self.expert)
            with reading(database) as session:
                detail = expert_detail(session, browsed, self.expert, vocabulary)
                query = ExampleQuery(limit=max(self.examples_shown, 1))
                page = example_page(session, browsed.record, self.expert, query, vocabulary)
        examples = page["examples"][: self.examples_shown]
        self.report(
            {"run": self.name, **detail.model_dump(mode="json"), "examples": examples},
            _format_expert(detail, examples),
        )
        return 0


def _browse(command: ExpertsCommand | ExpertCommand, database: Engine) -> tuple[BrowsedRun, Vocabulary]:
    """Read the index of a run and the texts of its tokens.

    Raises:
        UserError: there is no such run, or it has not been indexed.
    """
    from mxd.backend.inference.run_loader import Vocabulary
    from mxd.backend.queries.run_cache import RunCache
    from mxd.trainer.storage.run import Run

    settings = command.settings()
    run = Run.load(command.name, settings.data)
    run_cache = RunCache(database)
    try:
        return run_cache.of(run.name), Vocabulary(run.tokenizer)
    finally:
        run_cache.close()


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    label = row["label"] or (row["automatic"] or {}).get("label") or ""
    tokens = " ".join(repr(token["text"]) for token in row["top_tokens"][:MAX_TOKENS_SHOWN])
    return (
        str(row["expert"]),
        label if len(label) <= MAX_LABEL else f"{label[: MAX_LABEL - 1]}…",
        tokens,
        f"{row['density']:.3%}",
        f"{row['max_activation']:.3f}",
        "–" if row["loss_increase"] is None else f"{row['loss_increase']:+.4f}",
        "–" if row["recurrence"] is None else f"{row['recurrence']} of {row['compared_runs']}",
    )


def _format_expert(detail: ExpertDetail, examples: list[dict[str, Any]]) -> str:
    row = detail.row
    automatic = f"{row.automatic.label} (automatic)" if row.automatic else "no label"
    lines = [
        f"expert {row.expert}: {row.label or automatic}",
        f"density {row.density:.3%} ({row.active_tokens:,} tokens), mean activation {row.mean_activation:.3f}, "
        f"99th percentile {row.p99:.3f}, maximum {row.max_activation:.3f}",
    ]
    if row.loss_increase is not None and row.kl_amplified is not None:
        lines.append(
            f"ablated: loss {row.loss_increase:+.4f} nats; amplified: KL divergence {row.kl_amplified:.4f} nats"
        )
    tokens = ", ".join(f"{token.text!r} {token.share:.0%}" for token in row.top_tokens)
    lines += [f"tags: {', '.join(row.tags)}"] if row.tags else []
    lines += [f"note: {detail.note}"] if detail.note else []
    lines += _format_recurrence(detail)
    return "\n".join([*lines, f"top tokens: {tokens}", *map(_format_example, examples)])


def _format_recurrence(detail: ExpertDetail) -> list[str]:
    recurrence, row = detail.recurrence, detail.row
    if recurrence is None:
        return []
    if not recurrence.matches:
        too_few = f"fewer than {recurrence.min_tokens} of {recurrence.tokens:,} tokens"
        return [f"not compared with other runs: active on {too_few}"]
    return [
        f"found again in {row.recurrence} of {row.compared_runs} other runs",
        *(
            f"  {match.run} {match.expert}: {'found' if match.is_found else 'not found'}, firing cosine "
            f"{match.firing_cosine:.2f} ({match.firing_low:.2f} to {match.firing_high:.2f}; chance "
            f"{match.firing_chance:.2f}), writing cosine {match.writing_cosine:.2f} (chance {match.writing_chance:.2f})"
            for match in recurrence.matches
        ),
    ]


def _format_example(example: Mapping[str, Any]) -> str:
    """Return an example around its strongest token, which is put in brackets."""
    peak, tokens = example["position"], example["tokens"]
    before, after = "".join(tokens[max(peak - WINDOW, 0) : peak]), "".join(tokens[peak + 1 : peak + 1 + WINDOW])
    text = " ".join(f"{before}[{tokens[peak]}]{after}".split())
    return f"{example['coefficient']:8.3f}  {text}"
