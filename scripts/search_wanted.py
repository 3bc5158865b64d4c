"""Search by effect on runs of one layer or several: does the expert that is found promote the wanted word elsewhere?

    python -m scripts.search_wanted RUN… --data data > search.jsonl

Words and passages are drawn from a text. For each word, ``mxd find`` gets two passages that the word shall follow. The
best expert is then added to two passages of other documents, beside a random live expert at the same predicted price.
Prints one line per run.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

import mxd.trainer.experimental  # registers its settings  # noqa: F401
from mxd.trainer.analysis.effect_search import find, measure, unit_prices
from mxd.trainer.config.analysis import FindConfig
from mxd.trainer.config.steering import Edit
from mxd.trainer.config.training import TextConfig
from mxd.trainer.data.sequences import documents
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import provenance

SEED, HITS = 0, 4
PRICE, MOST_UNITS = 0.1, 100.0
"""Predicted price of every edit that is measured, in nats per token, and its largest strength."""
CONTEXT_WORDS, MIN_LETTERS, MIN_DOCUMENTS = 24, 4, 4


class Task(NamedTuple):
    """A word, passages for the search, and passages of other documents for the measurement."""

    wanted: str
    searched: tuple[str, ...]
    measured: tuple[str, ...]


def main() -> None:
    """Search and measure each run, and print JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--dataset", default="data/demo/held_out.jsonl.gz")
    parser.add_argument("--words", type=int, default=24)
    parser.add_argument("--data", type=Path, default=Path("data"))
    words = parser.parse_args()
    runs, text = [Run.load(name, words.data) for name in words.runs], TextConfig(dataset=words.dataset)
    language_model = LanguageModel.load(runs[0].language_model_source, "cpu")
    encode = language_model.tokenizer.encode
    texts = [each for each in documents(text) if isinstance(each, str)]
    tasks = draw(texts, lambda wanted: len(encode(wanted, add_special_tokens=False)) == 1, words.words)
    for run in runs:
        price_N = unit_prices(language_model, [run])[run.name]
        draws = random.Random(SEED)
        searches = [searched(language_model, run, task, price_N, draws) for task in tasks]
        origin = {"seed": SEED, "provenance": provenance([run], [text])}
        print(json.dumps({"run": run.name, "layer": run.config.layer, "searches": searches, **origin}), flush=True)


def draw(texts: Sequence[str], is_token: Callable[[str], bool], count: int) -> list[Task]:
    """Draw words of one token that several documents have, and passages of different documents for each."""
    draws, found = random.Random(SEED), dict[str, int]()
    split = [text.split() for text in texts]
    for words in split:
        for word in {word for word in words if word.isalpha() and word.islower() and len(word) >= MIN_LETTERS}:
            found[word] = found.get(word, 0) + 1
    usable = sorted(word for word, number in found.items() if number >= MIN_DOCUMENTS and is_token(" " + word))
    long = [words for words in split if len(words) > 2 * CONTEXT_WORDS]

    def passage(words: list[str]) -> str:
        first = draws.randrange(len(words) - CONTEXT_WORDS)
        return " ".join(words[first : first + CONTEXT_WORDS])

    tasks = []
    for word in draws.sample(usable, count):
        passages = [passage(words) for words in draws.sample(long, 4)]
        tasks.append(Task(" " + word, tuple(passages[:2]), tuple(passages[2:])))
    return tasks


def searched(
    language_model: LanguageModel, run: Run, task: Task, price_N: Tensor, draws: random.Random
) -> Mapping[str, Any]:
    """The best expert of a search and a random one, each with its effect on the other passages."""
    config = FindConfig(prompts=task.searched, wanted=(task.wanted,), hits=HITS)
    best = find(language_model, run, config).experts[0]
    drawn = draws.choice(price_N.nonzero()[:, 0].tolist())
    elsewhere = config.model_copy(update={"prompts": task.measured})
    edits = [priced(run, expert, price_N) for expert in (best.edit.expert, drawn)]
    effects = measure(language_model, run, elsewhere, [(edit,) for edit in edits]).effects
    own, other = (
        {"expert": edit.expert, "strength": edit.strength, "change": effect.change, "price": effect.price}
        for edit, effect in zip(edits, effects, strict=True)
    )
    return {"wanted": task.wanted, "searched": best.change, "found": own, "random": other}


def priced(run: Run, expert: int, price_N: Tensor) -> Edit:
    """Addition of an expert at the predicted price ``PRICE``, whatever its unit."""
    strength = min(math.sqrt(PRICE / float(price_N[expert])), MOST_UNITS)
    return Edit(run=run.name, expert=expert, mode="add", strength=round(strength, 2))


if __name__ == "__main__":
    main()
