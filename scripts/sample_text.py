"""Sample text from a language model under prompts of this project, then filter it: the text of the demo.

    python -m scripts.sample_text sample my-model samples --texts 9000 --start-token "<|endoftext|>"
    python -m scripts.sample_text collect samples data/demo

`sample` writes one file per batch of prompts. Run the same command again to resume an interrupted one.
`collect` filters degenerate and repeated texts, writes `text.jsonl.gz` and `held_out.jsonl.gz`, and prints how many
texts each filter removed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import Cache, DynamicLayer

from mxd.trainer.language_model.model import cache_argument
from scripts.text_filters import Limits, usable

PROMPTS = Path(__file__).parent / "prompts" / "writing.json"
SLOT = re.compile(r"\{(\w+)\}")
CANDIDATES = 256
"""Tokens that sampling chooses from at each step: the nucleus is taken among the most probable ones."""
ROOM = 64
"""Positions by which the cache grows."""
FINISHED_SHARE = 8
"""A batch is compacted once one row in this many has finished."""


@dataclass(frozen=True)
class Prompt:
    """A question in the chat template, or an opening that the text continues."""

    kind: str
    form: str
    text: str


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn."""

    temperature: float = 0.75
    top_p: float = 0.95
    longest: int = 256
    """Tokens per text."""


def filled(template: str, slots: dict[str, list[str]], draw: random.Random) -> str:
    """The template with a random entry in every slot, one at the beginning with a capital letter."""
    text = SLOT.sub(lambda slot: draw.choice(slots[slot[1]]), template)
    text = text[0].upper() + text[1:] if template[0] == "{" else text
    return re.sub(r"\b([Aa]) (?=[aeio])", r"\1n ", text)


def written_prompts(writing: dict[str, Any], count: int, openings: float, seed: int) -> list[Prompt]:
    """`count` distinct prompts: kinds in proportion to their weights, and a share of openings."""
    draw = random.Random(seed)
    kinds = list(writing["kinds"])
    weights = [writing["kinds"][kind]["weight"] for kind in kinds]
    prompts_seen: dict[Prompt, None] = {}
    while len(prompts_seen) < count:
        kind = draw.choices(kinds, weights)[0]
        form = "openings" if draw.random() < openings else "chat"
        text = filled(draw.choice(writing["kinds"][kind][form]), writing["slots"], draw)
        prompts_seen[Prompt(kind, form, text)] = None
    return list(prompts_seen)


def prompt_ids(prompt: Prompt, tokenizer: PreTrainedTokenizerBase, start: list[int]) -> list[int]:
    """Token ids that the model continues."""
    if prompt.form == "openings":
        return [*start, *tokenizer(prompt.text, add_special_tokens=False)["input_ids"]]
    messages = [{"role": "user", "content": prompt.text}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def batches(ids: Sequence[Sequence[int]], rows: int, seed: int) -> list[list[int]]:
    """Indices of at most `rows` prompts of equal length per batch, so that nothing is padded; in random order."""
    by_length = sorted(range(len(ids)), key=lambda index: len(ids[index]))
    groups = [list(group) for _, group in groupby(by_length, key=lambda index: len(ids[index]))]
    prompts_seen = [group[first : first + rows] for group in groups for first in range(0, len(group), rows)]
    random.Random(seed).shuffle(prompts_seen)
    return prompts_seen


def next_tokens(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> Tensor:
    """One token per row [rows] from the nucleus of the logits [rows, vocabulary]."""
    likely, tokens = logits.float().topk(min(CANDIDATES, logits.shape[1]))
    probabilities = torch.softmax(likely / sampling.temperature, dim=1)
    probabilities[probabilities.cumsum(1) - probabilities > sampling.top_p] = 0
    return tokens.gather(1, torch.multinomial(probabilities, 1, generator=generator))[:, 0]


class RoomyLayer(DynamicLayer):
    """A layer's keys and values with room for further positions, so that a step does not copy all earlier ones."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._room = torch.empty(2, 0, 0, 0, 0)

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Keys and values of all positions, each [rows, heads, positions, size]."""
        start = self.get_seq_length()
        rows, heads, added, size = key_states.shape
        end = start + added
        if end > self._room.shape[3] or rows != self._room.shape[1]:
            earlier = (self.keys, self.values) if start else ()
            self._room = key_states.new_empty(2, rows, heads, end + ROOM, size)
            for room, states in zip(self._room, earlier, strict=False):
                room[:, :, :start] = states
        for room, states in zip(self._room, (key_states, value_states), strict=True):
            room[:, :, start:end] = states
        self.keys, self.values = self._room[:, :, :, :end]
        self.is_initialized = True
        return self.keys, self.values


@torch.inference_mode()
def continued(
    model: PreTrainedModel, ids: Tensor, stop: set[int], sampling: Sampling, generator: torch.Generator
) -> list[list[int]]:
    """Token ids sampled after each row of `ids` [rows, tokens], up to a stop token."""
    texts: list[list[int]] = [[] for _ in ids]
    rows, finished = list(range(len(ids))), set[int]()
    cache = Cache(layer_class_to_replicate=RoomyLayer)
    for _ in range(sampling.longest):
        logits = model(ids, use_cache=True, logits_to_keep=1, **{cache_argument(model): cache}).logits[:, -1]
        drawn = next_tokens(logits, sampling, generator)
        for row, token in zip(rows, drawn.tolist(), strict=True):
            if token in stop:
                finished.add(row)
            if row not in finished:
                texts[row].append(token)
        ids = drawn[:, None]
        if len(finished.intersection(rows)) * FINISHED_SHARE >= len(rows):
            unfinished = torch.tensor(
                [place for place, row in enumerate(rows) if row not in finished], dtype=torch.int64
            )
            if not len(unfinished):
                break
            rows, ids = [rows[place] for place in unfinished.tolist()], ids[unfinished]
            cache.batch_select_indices(unfinished)
    return texts


def sampled(prompt: Prompt, text: str) -> dict[str, Any]:
    """One line of a part: an opening belongs to its text, a question does not."""
    return {**asdict(prompt), "prompt": prompt.text, "text": (prompt.text if prompt.form == "openings" else "") + text}


def write_samples(arguments: argparse.Namespace) -> None:
    """Sample every batch that has no file yet."""
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=arguments.dtype).eval()
    stop = {token for token, entry in tokenizer.added_tokens_decoder.items() if entry.special}
    start = tokenizer(arguments.start_token or tokenizer.eos_token, add_special_tokens=False)["input_ids"]
    prompts = written_prompts(
        json.loads(arguments.prompts.read_text("utf-8")), arguments.texts, arguments.openings, arguments.seed
    )
    ids = [prompt_ids(prompt, tokenizer, start) for prompt in prompts]
    sampling = Sampling(arguments.temperature, arguments.top_p, arguments.longest)
    arguments.output.mkdir(parents=True, exist_ok=True)
    left = [
        (batch, part)
        for number, batch in enumerate(batches(ids, arguments.rows, arguments.seed))
        if not (part := arguments.output / f"part-{number:05}.jsonl").exists()
    ]
    tokens, texts, begun = 0, 0, time.monotonic()
    for batch, part in left:
        generator = torch.Generator().manual_seed(zlib.crc32(f"{arguments.seed} {part.name}".encode()))
        prompts_seen = continued(model, torch.tensor([ids[index] for index in batch]), stop, sampling, generator)
        lines = [
            json.dumps(sampled(prompts[index], text), ensure_ascii=False) + "\n"
            for index, text in zip(batch, tokenizer.batch_decode(prompts_seen), strict=True)
        ]
        unfinished = part.with_suffix(".unfinished")
        unfinished.write_text("".join(lines), "utf-8")
        unfinished.replace(part)
        tokens, texts = tokens + sum(map(len, prompts_seen)), texts + len(batch)
        seconds = time.monotonic() - begun
        ahead = sum(len(other) for other, _ in left) - texts
        print(
            f"{texts:,} texts, {tokens:,} tokens, {tokens / seconds:.0f} tokens/s, "
            f"{ahead / texts * seconds / 60:.0f} minutes left",
            file=sys.stderr,
            flush=True,
        )


def write_lines(path: Path, lines: Iterable[dict[str, str]]) -> None:
    """Gzipped JSON lines, with no time in the header: the same lines give the same bytes."""
    plain = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(plain, 9, mtime=0))


def collect(arguments: argparse.Namespace) -> None:
    """Filter all samples and write them, a random part as held-out text."""
    lines = [
        json.loads(line)
        for part in sorted(arguments.samples.glob("part-*.jsonl"))
        for line in part.read_text("utf-8").split("\n")[:-1]
    ]
    random.Random(0).shuffle(lines)
    removed: Counter[str] = Counter()
    texts = list(usable(lines, Limits(), removed))
    sizes = accumulate(len(text["text"].encode()) for text in texts)
    held_out = sum(size <= arguments.held_out for size in sizes)
    arguments.output.mkdir(parents=True, exist_ok=True)
    write_lines(arguments.output / "held_out.jsonl.gz", texts[:held_out])
    write_lines(arguments.output / "text.jsonl.gz", texts[held_out:])
    counts = {"sampled": len(lines), "held_out": held_out, "kept": len(texts) - held_out, "removed": removed}
    print(json.dumps({**counts, "kinds": Counter(text["kind"] for text in texts[held_out:])}, indent=2))


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    sample = commands.add_parser("sample", help="sample texts, one file per batch")
    sample.add_argument("model", help="Hugging Face folder or name of a causal language model with a chat template")
    sample.add_argument("output", type=Path, help="folder of the batches")
    sample.add_argument("--prompts", type=Path, default=PROMPTS, help="JSON file of templates and slots")
    sample.add_argument("--texts", type=int, default=10_000, help="number of distinct prompts, one text each")
    sample.add_argument("--openings", type=float, default=0.4, help="share of openings; 1 without a chat template")
    sample.add_argument("--rows", type=int, default=256, help="largest batch")
    sample.add_argument("--longest", type=int, default=Sampling.longest, help="tokens per text")
    sample.add_argument("--temperature", type=float, default=Sampling.temperature)
    sample.add_argument("--top-p", type=float, default=Sampling.top_p)
    sample.add_argument("--start-token", help="token before an opening (default: the end token)")
    sample.add_argument("--dtype", default="bfloat16")
    sample.add_argument("--seed", type=int, default=0)
    sample.set_defaults(run=write_samples)
    collected = commands.add_parser("collect", help="filter the samples and write them compressed")
    collected.add_argument("samples", type=Path, help="folder of the batches")
    collected.add_argument("output", type=Path, help="folder of the two files")
    collected.add_argument("--held-out", type=int, default=200_000, help="bytes of held-out text")
    collected.set_defaults(run=collect)
    arguments = parser.parse_args(given)
    arguments.run(arguments)


if __name__ == "__main__":
    main()
