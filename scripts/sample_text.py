"""Sample text from a language model: how the text of the shipped sample was made.

python scripts/sample_text.py data/demo/language-model data/demo/text.jsonl.gz --tokens 600000
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from trainer.language_model import LanguageModel
from trainer.tokens import separator_id

ROWS = 96
LONGEST = 320
SHORTEST = 24


def samples(language_model: LanguageModel, seed: int) -> Iterator[list[int]]:
    """Token ids of one document after the other, without the tokens that begin and end it."""
    torch.manual_seed(seed)
    start = separator_id(language_model.tokenizer)
    while True:
        generated = language_model.module.generate(
            torch.full((ROWS, 1), start),
            attention_mask=torch.ones(ROWS, 1, dtype=torch.int64),
            do_sample=True,
            temperature=0.8,
            top_p=0.95,
            max_new_tokens=LONGEST,
            pad_token_id=start,
        )
        for row in generated[:, 1:].tolist():
            ids = row[: row.index(start)] if start in row else row
            if len(ids) >= SHORTEST:
                yield ids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("language_model")
    parser.add_argument("output", type=Path)
    parser.add_argument("--tokens", type=int, default=600_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    language_model = LanguageModel.load(arguments.language_model, "cpu")
    written = 0
    with gzip.open(arguments.output, "wt", compresslevel=9) as output:
        for ids in samples(language_model, arguments.seed):
            output.write(json.dumps({"text": language_model.tokenizer.decode(ids)}, ensure_ascii=False) + "\n")
            written += len(ids)
            print(f"\r{written:,} of {arguments.tokens:,} tokens", end="", file=sys.stderr)
            if written >= arguments.tokens:
                break
    print(file=sys.stderr)


if __name__ == "__main__":
    main()
