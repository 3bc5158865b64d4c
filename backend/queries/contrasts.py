"""Contrasts as served: kinds of a run's indexed text, and experts with labels and decoded examples."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from dataclasses import asdict, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from sqlalchemy.orm import Session

from mxd.backend.inference.run_loader import Vocabulary
from mxd.backend.queries.automatic_labels import both_labels
from mxd.backend.queries.experts import known, top_tokens
from mxd.backend.schemas.comparison import ContrastHit, ContrastRequest, ContrastResult, ContrastText
from mxd.backend.schemas.experts import Example
from mxd.backend.schemas.routing import TextKind, TextKinds
from mxd.trainer.analysis.results import Contrast, ContrastedExpert, ContrastedText, ContrastExample, ContrastExamples
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.tables import IndexRecord, RunRecord
from mxd.trainer.utils.display import suggest

if TYPE_CHECKING:
    from mxd.trainer.data.readers import LabelledText

KIND_COLUMN = "kind"
TOP_TOKENS = 5
MAX_FILE_BYTES = 2**26
"""Larger files are not searched for kinds, which would take minutes."""


def read_kinds(session: Session, run: RunRecord, data: Path) -> TextKinds:
    """Count the kinds of the documents of a run's indexed text, if its file is in the data folder and has kinds.
    Without an index, the training text is read."""
    text = _text_name(session, run)
    documents, characters = Counter[str](), Counter[str]()
    for each in _labelled(run, data / text):
        documents[each.label] += 1
        characters[each.label] += len(each.text)
    kinds = (TextKind(kind=kind, documents=count, characters=characters[kind]) for kind, count in documents.items())
    return TextKinds(text=text, kinds=tuple(sorted(kinds, key=lambda each: (-each.documents, each.kind))))


def read_texts(session: Session, run: RunRecord, data: Path, request: ContrastRequest) -> list[list[str]]:
    """Return the documents of both texts. Raises UserError if the run's text has no such kind."""
    of_kind: dict[str, list[str]] = defaultdict(list)
    if not (request.a.documents and request.b.documents):
        for each in _labelled(run, data / _text_name(session, run)):
            of_kind[each.label].append(each.text)
    for kind in (choice.kind or "" for choice in (request.a, request.b) if not choice.documents):
        if kind not in of_kind:
            known_kinds = sorted(of_kind)
            listed = ", ".join(known_kinds[:30]) or "none"
            raise UserError(
                f"The indexed text has no kind '{kind[:100]}'.{suggest(kind, known_kinds)} Its kinds: {listed}."
            )
    return [list(choice.documents) or of_kind[choice.kind or ""] for choice in (request.a, request.b)]


def _text_name(session: Session, run: RunRecord) -> str:
    """Name of the indexed text. Only files directly in the data folder are read, whatever path was stored."""
    index = session.get(IndexRecord, run.id)
    return PurePath(run.text if index is None else index.text).name


def _labelled(run: RunRecord, path: Path) -> list[LabelledText]:
    """Labelled texts of a file; empty if it does not exist or has no kinds."""
    from mxd.trainer.data.readers import labelled_file, read_labelled

    # os.path.isfile: a name may be longer than the file system allows, for which Path.is_file raises an error.
    if not os.path.isfile(path) or path.stat().st_size > MAX_FILE_BYTES:
        return []
    try:
        return list(read_labelled(labelled_file(str(path)), run.config["text"].get("column", "text"), KIND_COLUMN))
    except UserError:  # a file without kinds, which is common and no error of the request
        return []


def contrast_result(
    session: Session, run: RunRecord, contrast: Contrast, request: ContrastRequest, vocabulary: Vocabulary
) -> ContrastResult:
    significant = [each for each in contrast.experts if each.is_found]
    more_in_a = [each for each in significant if each.ratio.value > 1][: request.limit]
    more_in_b = [each for each in significant if each.ratio.value < 1][: request.limit]
    ids = [each.expert for each in (*more_in_a, *more_in_b)]
    records = known(session, run, ids)
    labels = both_labels(session, run, ids)

    def hit(each: ContrastedExpert) -> ContrastHit:
        record, examples = records.get(each.expert), contrast.examples.get(each.expert, ContrastExamples((), ()))
        return ContrastHit(
            contrast=each,
            warning=each.warning(contrast.unit),
            **labels[each.expert],
            max_activation=record.max_activation if record else None,
            top_tokens=top_tokens(record, vocabulary)[:TOP_TOKENS] if record else (),
            examples_a=_examples(examples.a, vocabulary),
            examples_b=_examples(examples.b, vocabulary),
        )

    def text(side: ContrastedText, choice: ContrastText, otherwise: str) -> ContrastedText:
        return replace(side, name=otherwise if choice.documents or choice.kind is None else choice.kind)

    texts = {"a": text(contrast.a, request.a, "A"), "b": text(contrast.b, request.b, "B")}
    return ContrastResult(
        **{name: getattr(contrast, name) for name in ContrastResult.model_fields if hasattr(contrast, name)} | texts,
        more_in_a=tuple(map(hit, more_in_a)),
        more_in_b=tuple(map(hit, more_in_b)),
    )


def _examples(examples: tuple[ContrastExample, ...], vocabulary: Vocabulary) -> tuple[Example, ...]:
    return tuple(
        Example(bin=0, rank=rank, tokens=vocabulary.texts(example.token_ids), **asdict(example))
        for rank, example in enumerate(examples)
    )
