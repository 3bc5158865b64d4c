"""Sampling the demo's text: prompts, batches, an interrupted run and the filters."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from scripts.sample_text import (
    PROMPTS,
    SLOT,
    Sampling,
    batches,
    continued,
    filled,
    main,
    written_prompts,
)
from scripts.text_filters import Duplicates, Limits, before_loop, defect, usable
from tests.helpers.language_models import saved_language_model, tiny_language_model

WORDS = ["river", "stone", "window", "letter", "garden", "morning", "silver", "harbour", "quiet", "captain", "winter"]
WRITING: dict[str, Any] = json.loads(PROMPTS.read_text("utf-8"))


def prose(seed: int, words: int = 60) -> str:
    """Text without meaning or repetition."""
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) + str(draw.randrange(100)) for _ in range(words))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_language_model(tmp_path_factory.mktemp("saved") / "model")


def arguments(model: Path, output: Path) -> list[str]:
    return f"sample {model} {output} --texts 40 --openings 1 --rows 4 --longest 6 --dtype float32".split()


def test_every_slot_has_entries_and_every_entry_a_template() -> None:
    templates = [text for kind in WRITING["kinds"].values() for form in ("chat", "openings") for text in kind[form]]
    assert {slot for text in templates for slot in SLOT.findall(text)} == WRITING["slots"].keys()
    assert len(set(templates)) == len(templates)


def test_prompts_are_distinct_and_repeatable() -> None:
    prompts = written_prompts(WRITING, 500, 0.4, seed=1)
    assert prompts == written_prompts(WRITING, 500, 0.4, seed=1) != written_prompts(WRITING, 500, 0.4, seed=2)
    assert len(set(prompts)) == 500
    assert {prompt.kind for prompt in prompts} == WRITING["kinds"].keys()
    assert 0.3 < sum(prompt.form == "openings" for prompt in prompts) / 500 < 0.5
    assert not any(SLOT.search(prompt.text) for prompt in prompts)


def test_an_article_fits_its_noun() -> None:
    assert filled("A {animal} and a {animal}", {"animal": ["owl"]}, random.Random(0)) == "An owl and an owl"


def test_a_batch_has_one_length() -> None:
    ids = [[0] * (1 + index % 3) for index in range(20)]
    found = batches(ids, rows=4, seed=0)
    assert sorted(index for batch in found for index in batch) == list(range(20))
    assert all(len(batch) <= 4 and len({len(ids[index]) for index in batch}) == 1 for batch in found)


def test_a_narrow_nucleus_is_greedy_decoding() -> None:
    """Rows that finish early leave the others as they are."""
    model = tiny_language_model().module
    ids = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]])
    expected = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=12)[:, 3:]
    stop = {int(expected[0, 2]), 0}
    found = continued(model, ids, stop, Sampling(top_p=1e-6, longest=12), torch.Generator())
    for text, row in zip(found, expected.tolist(), strict=True):
        end = next((place for place, token in enumerate(row) if token in stop), len(row))
        assert text == row[:end]
    assert len(found[0]) < max(map(len, found))


def test_an_interrupted_run_resumes_with_the_same_texts(model: Path, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    main(arguments(model, whole))
    main(arguments(model, cut))
    parts = sorted(path.name for path in whole.iterdir())
    before = (cut / parts[0]).stat().st_mtime_ns
    (cut / parts[1]).rename(cut / parts[1].replace("jsonl", "unfinished"))
    (cut / parts[2]).unlink()
    main(arguments(model, cut))
    assert [(cut / part).read_bytes() for part in parts] == [(whole / part).read_bytes() for part in parts]
    assert (cut / parts[0]).stat().st_mtime_ns == before
    assert sum(len((cut / part).read_text("utf-8").split("\n")) - 1 for part in parts) == 40


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (prose(0), None),
        ("Too short.", "short"),
        (prose(1) + " I am gone." * 40, "repeated"),
        (" ".join("ab" * count for count in range(1, 60)), "compressible"),
        (prose(5) + " " + "".join(prose(6).split()), "long word"),
        (prose(2) + " As an AI language model, I cannot.", "assistant"),
        (prose(7) + " The terrorists fled.", "sensitive"),
        (prose(3) + " Write to someone@example.org.", "address"),
        (prose(4) + " caf\ufffd.", "undecodable"),
    ],
)
def test_filters(text: str, reason: str | None) -> None:
    assert defect(text, Limits()) == reason


def test_text_is_cut_before_a_repeated_loop() -> None:
    begun = prose(0) + ". "
    loop = "The owl sat by the river and the mouse sat by the owl. "
    assert before_loop(begun + 10 * loop) == (begun + loop).strip()
    assert before_loop(begun + loop) == begun + loop
    assert before_loop(loop * 10) == loop.strip()


def test_a_text_that_shares_a_passage_with_another_is_a_duplicate() -> None:
    duplicates = Duplicates(Limits())
    first = prose(0)
    assert [duplicates.repeats(text) for text in (first, prose(1), first, first.upper())] == [False, False, True, True]
    assert duplicates.repeats(" ".join(first.split()[:20] + prose(2).split()))
    assert not duplicates.repeats(" ".join(first.split()[:8] + prose(3).split()))


def test_removed_texts_are_counted() -> None:
    removed: Counter[str] = Counter()
    texts = [prose(0), "Short.", prose(0), prose(1) + "\ufffd"]
    found = list(usable(({"kind": "story", "text": text} for text in texts), Limits(), removed))
    assert [text["text"] for text in found] == [prose(0), prose(1)]
    assert removed == {"short": 1, "duplicate": 1}


def test_collected_files_are_repeatable_and_share_no_text(tmp_path: Path) -> None:
    samples = tmp_path / "samples"
    samples.mkdir()
    lines = [json.dumps({"kind": "story", "text": prose(seed)}) + "\n" for seed in range(12)]
    (samples / "part-00000.jsonl").write_text("".join(lines), "utf-8")
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        main(["collect", str(samples), str(folder), "--held-out", "2000"])
    texts = {
        name: [json.loads(line)["text"] for line in gzip.decompress((folders[0] / name).read_bytes()).splitlines()]
        for name in ("text.jsonl.gz", "held_out.jsonl.gz")
    }
    assert sorted(texts["text.jsonl.gz"] + texts["held_out.jsonl.gz"]) == sorted(prose(seed) for seed in range(12))
    assert 1000 < sum(map(len, texts["held_out.jsonl.gz"])) <= 2000
    for name in texts:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
