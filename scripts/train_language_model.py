"""Train a small language model, or go on with one: how the sample's own was made.

    python scripts/train_language_model.py my-model --text texts.jsonl.gz --epochs 2
    python scripts/train_language_model.py better --text texts.jsonl.gz --from my-model --learning-rate 1e-3

Without --from it begins at random, with the sample's shape or that of --config, and with a byte-level BPE tokenizer of
the text's own. The folder becomes a Hugging Face language model, training.json beside it says how it was made. Stopped,
by Ctrl-C or by a power cut, the same line with --resume goes on from the last checkpoint, bit for bit on a CPU.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from pydantic_settings import CliApp, CliPositionalArg, SettingsConfigDict
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from torch.utils.data import Dataset
from transformers import (
    AutoModelForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

from backend.commands.console import Interrupted, StopRequest, progress
from backend.commands.parsing import CommandLine
from backend.commands.running import guarded
from trainer.config import SAMPLE, Count, Size, TextConfig
from trainer.errors import UserError
from trainer.files import read_json, write_whole
from trainer.heap import keep_freed_memory
from trainer.loading import load_module, load_outline
from trainer.precision import has_bfloat16_units
from trainer.progress import Progress
from trainer.text import documents, token_ids
from trainer.tokens import load_tokenizer, separator_id

END = "<|endoftext|>"
"""Separator of documents in a tokenizer that is trained here."""
LARGEST_HELD_OUT_SHARE = 10
"""Of a text from which the held-out sequences are taken too, they are at most one in so many."""

Rows = npt.NDArray[np.int32]
"""Token ids [sequences, tokens of each]."""


class Recipe(CommandLine):
    """Train a small language model, or go on with one."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, cli_prog_name="train_language_model.py"
    )

    output: CliPositionalArg[Path]
    """Folder that becomes the language model."""
    text: str
    """A .txt, .jsonl, .csv (also .gz, .zst) or .parquet file, a folder of them, or a data set on the hub."""
    column: str = "text"
    """Name of the field that holds the text."""
    begun: Annotated[str | None, Field(alias="from")] = None
    """A language model to go on with, by folder or hub name; without, one begins at random."""
    config: str = str(SAMPLE / "language-model")
    """Folder whose config.json gives the shape of one that begins at random; by default the sample's."""
    tokenizer: str | None = None
    """Folder or hub name of a tokenizer; without, that of --from, or one is trained on the text."""
    vocabulary: Size = 8192
    """Tokens of a tokenizer that is trained."""
    epochs: Annotated[float, Field(gt=0)] = 1.0
    """Passes over the text."""
    tokens: Count | None = None
    """Tokens to train on, such as 30M; said instead of --epochs."""
    context: Annotated[int, Field(ge=8)] = 256
    """Tokens of a sequence."""
    batch: Size = 16
    """Sequences of a step."""
    learning_rate: Annotated[float, Field(gt=0)] = 3e-3
    """Peak learning rate of AdamW."""
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.02
    """Share of the steps over which the learning rate rises from 0; over the others it falls to 0 as a cosine does."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.05
    """Of AdamW, on matrices."""
    held_out: str | None = None
    """Text for the held-out loss; without, the beginning of --text is kept out of training."""
    held_out_tokens: Count = 65_536
    """How many of its tokens are read, from its beginning."""
    held_out_times: Annotated[int, Field(ge=1)] = 20
    """How often the held-out loss is measured on the way; more seldom where that would read more than is trained on."""
    checkpoint_minutes: Annotated[float, Field(ge=0)] = 5.0
    """Between two checkpoints."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the first weights and of the order of the sequences."""
    resume: bool = False
    """Go on from the last checkpoint in the folder."""


class Packed(Dataset[dict[str, Tensor]]):
    """Sequences as ``Trainer`` wants them: every token is input, and label of the one before."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        ids = torch.from_numpy(self._rows[place].astype(np.int64))
        return {"input_ids": ids, "labels": ids}


class Pace(TrainerCallback):
    """Saves every few minutes and when asked to stop, and tells how far it is."""

    def __init__(self, minutes: float, tokens_a_step: int, stop: StopRequest, shown: Progress) -> None:
        self._seconds, self._tokens, self._stop, self._shown = 60 * minutes, tokens_a_step, stop, shown
        self._saved, self._notes = time.monotonic(), dict[str, str]()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Between two steps."""
        del args, kwargs
        due = time.monotonic() - self._saved >= self._seconds
        if state.global_step < state.max_steps and (due or self._stop()):
            self._saved = time.monotonic()
            control.should_save = True
        control.should_training_stop = control.should_training_stop or self._stop()
        done, all_of_it = state.global_step * self._tokens, state.max_steps * self._tokens
        self._shown(done, all_of_it, ", ".join(f"{name} {value}" for name, value in self._notes.items()))

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """What there is to tell."""
        del args, state, control
        for name, words in (("loss", "loss"), ("eval_loss", "held out")):
            if name in kwargs["logs"]:
                self._notes[words] = f"{float(kwargs['logs'][name]):.3f}"


def trained_tokenizer(text: TextConfig, vocabulary: int) -> PreTrainedTokenizerBase:
    """A byte-level BPE tokenizer of a text's own; token 0 separates documents."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(documents(text), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END)


def packed(text: TextConfig, tokenizer: PreTrainedTokenizerBase, most: int | None = None) -> Rows:
    """All documents one after the other, the separator before each, cut into rows; ``most`` tokens of them.

    Raises:
        UserError: there is no text, or less than a row of it.
    """
    found, count = list[npt.NDArray[np.int32]](), 0
    for ids in token_ids(text, tokenizer):
        found.append(ids)
        count += len(ids)
        if most is not None and count >= most:
            break
    ids = np.concatenate(found)[:most]
    if len(ids) < text.context:
        raise UserError(f"{text.text} holds {len(ids)} tokens, fewer than a sequence has; give more text.")
    return ids[: len(ids) // text.context * text.context].reshape(-1, text.context)


def parted(recipe: Recipe, tokenizer: PreTrainedTokenizerBase) -> tuple[Rows, Rows]:
    """Rows to train on, and rows held out.

    Raises:
        UserError: a text is missing or too short.
    """
    text = TextConfig(text=recipe.text, column=recipe.column, context=recipe.context)
    rows = packed(text, tokenizer)
    if len(rows) < 2 * recipe.batch:
        raise UserError(f"{recipe.text} has {len(rows)} sequences, too few for two steps; give more, or less --batch.")
    if recipe.held_out is not None:
        return rows, packed(text.model_copy(update={"text": recipe.held_out}), tokenizer, recipe.held_out_tokens)
    share = max(1, min(recipe.held_out_tokens // recipe.context, len(rows) // LARGEST_HELD_OUT_SHARE))
    return rows[share:], rows[:share]


def prepared(recipe: Recipe, checkpoint: str | None) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The language model as it begins, in float32, and its tokenizer.

    Raises:
        UserError: something that is named cannot be read, or the parts do not go together.
    """
    named, begun = checkpoint or recipe.tokenizer or recipe.begun, checkpoint or recipe.begun
    text = TextConfig(text=recipe.text, column=recipe.column)
    tokenizer = load_tokenizer(named) if named else trained_tokenizer(text, recipe.vocabulary)
    set_seed(recipe.seed)
    module = load_module(begun, torch.float32) if begun else fresh(recipe.config, tokenizer)
    positions, known = getattr(module.config, "max_position_embeddings", recipe.context), module.config.vocab_size
    if recipe.context > positions:
        raise UserError(f"The language model has {positions} positions; give --context {positions} or less.")
    if len(tokenizer) > known:
        raise UserError(f"The tokenizer has {len(tokenizer)} tokens, the language model knows {known}; give its own.")
    tokenizer.model_max_length = positions
    embedding: Any = module.get_input_embeddings()
    embedding.padding_idx = None  # nothing is padded; a separator named as padding is learnt too
    return module, tokenizer


def fresh(shape: str, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """A language model with random weights, shaped as another, for a tokenizer."""
    config, separator = load_outline(shape).config, separator_id(tokenizer)
    config.update({"vocab_size": len(tokenizer), "bos_token_id": separator, "eos_token_id": separator})
    module: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return module


def arguments(recipe: Recipe, steps: int, held_out: Rows, checkpoint: str | None) -> TrainingArguments:
    """What ``Trainer`` is told. In bfloat16, weights and optimizer in float32, where the device has units for it."""
    on_gpu = torch.cuda.is_available()
    times = max(1, min(recipe.held_out_times, steps * recipe.batch // len(held_out)))
    return TrainingArguments(
        output_dir=str(recipe.output / "checkpoints"),
        max_steps=steps,
        per_device_train_batch_size=recipe.batch,
        per_device_eval_batch_size=recipe.batch,
        learning_rate=recipe.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=math.ceil(recipe.warmup * steps),
        weight_decay=recipe.weight_decay,
        adam_beta2=0.95,
        max_grad_norm=1.0,
        use_cpu=not on_gpu,
        bf16=torch.cuda.is_bf16_supported() if on_gpu else has_bfloat16_units(),
        eval_strategy="steps",
        eval_on_start=checkpoint is None,
        eval_steps=max(1, steps // times),
        prediction_loss_only=True,
        logging_steps=max(1, min(50, steps // 20)),
        save_strategy="no",  # Pace does, by the clock
        save_total_limit=2,
        dataloader_drop_last=True,  # every step has as many tokens
        report_to="none",
        disable_tqdm=True,
        seed=recipe.seed,
    )


def last_checkpoint(recipe: Recipe) -> str | None:
    """The newest one that is whole, where it is to be gone on with.

    Raises:
        UserError: there are some, or a language model, and it was not said that they are to be gone on with.
    """
    ends = recipe.output.glob("checkpoints/checkpoint-*/trainer_state.json")
    folders = [end.parent for end in ends if is_whole(end)]
    if not recipe.resume and (folders or (recipe.output / "config.json").exists()):
        raise UserError(f"{recipe.output} holds a language model already; add --resume, or name another folder.")
    return str(max(folders, key=lambda folder: int(folder.name.rpartition("-")[2]))) if folders else None


def is_whole(state: Path) -> bool:
    """Whether a checkpoint was written to its end, which is this file."""
    try:
        return bool(read_json(state))
    except ValueError:
        return False


def train(recipe: Recipe, more: Sequence[TrainerCallback] = ()) -> None:
    """Train, and write the folder. ``more`` are callbacks of ``Trainer``.

    Raises:
        UserError: something that was given cannot be used.
        Interrupted: it was asked to stop, and has, with a checkpoint.
    """
    keep_freed_memory()
    checkpoint = last_checkpoint(recipe)
    module, tokenizer = prepared(recipe, checkpoint)
    rows, held_out = parted(recipe, tokenizer)
    tokens_a_step = recipe.batch * recipe.context
    steps = max(1, math.ceil((recipe.tokens or recipe.epochs * rows.size) / tokens_a_step))
    stop = StopRequest()
    with progress("Training") as shown, stop.listening():
        trainer = Trainer(
            module,
            arguments(recipe, steps, held_out, checkpoint),
            train_dataset=Packed(rows),
            eval_dataset=Packed(held_out),
            data_collator=default_data_collator,
            processing_class=tokenizer,
            callbacks=[Pace(recipe.checkpoint_minutes, tokens_a_step, stop, shown), *more],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train(resume_from_checkpoint=checkpoint)
    if trainer.state.global_step < steps:
        raise Interrupted("stopped; the same line with --resume goes on from here.", stop.exit_code)
    trainer.evaluate()
    module.config.use_cache = True  # Trainer has taken it away, and without it every token is written by reading all
    module.save_pretrained(recipe.output)
    tokenizer.save_pretrained(recipe.output)
    told = json.dumps(record(recipe, trainer.state, rows, module.num_parameters()), indent=1)
    write_whole(recipe.output / "training.json", told + "\n")


def record(recipe: Recipe, state: TrainerState, rows: Rows, parameters: int) -> dict[str, Any]:
    """How the language model was made: tokens, losses in nats, settings."""
    tokens_a_step, history = recipe.batch * recipe.context, state.log_history
    held_out = {entry["step"] * tokens_a_step: entry["eval_loss"] for entry in history if "eval_loss" in entry}
    losses = {entry["step"] * tokens_a_step: float(entry["loss"]) for entry in history if "loss" in entry}
    before = Path(recipe.begun or "") / "training.json"
    return {
        "tokens": state.global_step * tokens_a_step,
        "tokens_of_text": rows.size,
        "parameters": parameters,
        "held_out_loss": held_out[max(held_out)],
        "held_out_losses": held_out,
        "train_losses": losses,
        "settings": recipe.model_dump(mode="json", by_alias=True),
        "before": read_json(before) if recipe.begun and before.is_file() else None,
    }


def main(words: Sequence[str]) -> int:
    """Do what the words say. Returns the exit code."""

    def work() -> int:
        train(recipe := CliApp.run(Recipe, list(words)))
        print(f"In {recipe.output}: a Hugging Face language model, and training.json.")
        return 0

    return guarded(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
