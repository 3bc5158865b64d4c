"""Train a small language model, or continue training one. The demo's model was made with it.

    python scripts/train_language_model.py my-model --dataset texts.jsonl.gz --epochs 2
    python scripts/train_language_model.py better --dataset texts.jsonl.gz --from my-model --learning-rate 1e-3

Without --from the weights are random, the architecture is the demo's or that of --config, and a byte-level BPE
tokenizer is trained on the text. The output folder becomes a Hugging Face model with a training.json. Interrupted runs
continue with --resume, bit-identically on a CPU.
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
from pydantic import BaseModel, ConfigDict, Field
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

from mxd.backend.cli.base import Positional
from mxd.backend.cli.console import Interrupted, StopRequest, progress
from mxd.backend.cli.parser import parse
from mxd.backend.cli.runner import guarded
from mxd.trainer.config import SAMPLE, Count, Size, TextConfig
from mxd.trainer.data.sequences import documents, tokenize_documents
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.loading import load_module, load_outline
from mxd.trainer.language_model.tokenizer import load_tokenizer, start_token_id
from mxd.trainer.training.planning.dtypes import has_bfloat16_units
from mxd.trainer.utils.callbacks import Callbacks
from mxd.trainer.utils.files import atomic_write, read_json
from mxd.trainer.utils.memory import keep_freed_memory

END = "<|endoftext|>"
"""Token that separates documents, if the tokenizer is trained here."""
LARGEST_HELD_OUT_SHARE = 10
"""If the held-out text comes from the training text, it is at most this fraction (1 / value) of the sequences."""

Rows = npt.NDArray[np.int32]
"""Token ids [sequences, tokens per sequence]."""


class Recipe(BaseModel):
    """Train a small language model, or continue training one."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    output: Positional[Path]
    """Output folder."""
    dataset: str
    """A .txt, .jsonl, .csv (also .gz, .zst) or .parquet file, a folder of them, or a Hub dataset."""
    column: str = "text"
    """Name of the text field."""
    base: Annotated[str | None, Field(alias="from")] = None
    """Language model to continue, a folder or Hub name. Default: random weights."""
    config: str = str(SAMPLE / "language-model")
    """Folder whose config.json defines the architecture of a new model. Default: the demo's."""
    tokenizer: str | None = None
    """Folder or Hub name of a tokenizer. Default: that of --from, or a new one trained on the text."""
    vocabulary: Size = 8192
    """Vocabulary size of a new tokenizer."""
    epochs: Annotated[float, Field(gt=0)] = 1.0
    """Passes over the text."""
    tokens: Count | None = None
    """Training tokens, such as 30M. Replaces --epochs."""
    context_length: Annotated[int, Field(ge=8)] = 256
    """Tokens per sequence."""
    batch: Size = 16
    """Sequences per step."""
    learning_rate: Annotated[float, Field(gt=0)] = 3e-3
    """Peak learning rate of AdamW."""
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.02
    """Warm-up as a fraction of all steps; a cosine decay to 0 follows."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.05
    """Weight decay of AdamW, on matrices."""
    held_out: str | None = None
    """Text for the held-out loss. Default: the beginning of --dataset, excluded from training."""
    held_out_tokens: Count = 65_536
    """Number of held-out tokens, from the beginning of the text."""
    held_out_times: Annotated[int, Field(ge=1)] = 20
    """How often the held-out loss is measured during training; less often for short training."""
    checkpoint_minutes: Annotated[float, Field(ge=0)] = 5.0
    """Minutes between checkpoints."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of the initial weights and of the order of the sequences."""
    resume: bool = False
    """Continue from the last checkpoint in the folder."""


class Packed(Dataset[dict[str, Tensor]]):
    """Sequences in the format of ``Trainer``: every token is an input and the label of the previous one."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        ids = torch.from_numpy(self._rows[place].astype(np.int64))
        return {"input_ids": ids, "labels": ids}


class Pace(TrainerCallback):
    """Saves a checkpoint every few minutes and on interruption, and reports progress."""

    def __init__(self, minutes: float, tokens_a_step: int, callbacks: Callbacks) -> None:
        self._seconds, self._tokens, self._callbacks = 60 * minutes, tokens_a_step, callbacks
        self._saved, self._notes = time.monotonic(), dict[str, str]()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Called between two steps."""
        del args, kwargs
        due = time.monotonic() - self._saved >= self._seconds
        if state.global_step < state.max_steps and (due or self._callbacks.is_cancelled()):
            self._saved = time.monotonic()
            control.should_save = True
        control.should_training_stop = control.should_training_stop or self._callbacks.is_cancelled()
        done, all_of_it = state.global_step * self._tokens, state.max_steps * self._tokens
        self._callbacks.on_progress(
            done, all_of_it, ", ".join(f"{name} {value}" for name, value in self._notes.items())
        )

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Called with metrics."""
        del args, state, control
        for name, words in (("loss", "loss"), ("eval_loss", "held out")):
            if name in kwargs["logs"]:
                self._notes[words] = f"{float(kwargs['logs'][name]):.3f}"


def train_tokenizer(text: TextConfig, vocabulary: int) -> PreTrainedTokenizerBase:
    """Train a byte-level BPE tokenizer on a text; token 0 separates documents."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(documents(text), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END)


def pack(text: TextConfig, tokenizer: PreTrainedTokenizerBase, most: int | None = None) -> Rows:
    """Concatenate all documents, each after a separator, and cut them into rows; at most ``most`` tokens in total.

    Raises:
        UserError: the text is empty or shorter than one row.
    """
    batches, count = list[npt.NDArray[np.int32]](), 0
    for ids in tokenize_documents(text, tokenizer):
        batches.append(ids)
        count += len(ids)
        if most is not None and count >= most:
            break
    ids = np.concatenate(batches)[:most]
    if len(ids) < text.context_length:
        raise UserError(f"{text.dataset} has {len(ids)} tokens, fewer than one sequence. Provide more text.")
    return ids[: len(ids) // text.context_length * text.context_length].reshape(-1, text.context_length)


def split_held_out(recipe: Recipe, tokenizer: PreTrainedTokenizerBase) -> tuple[Rows, Rows]:
    """Return training rows and held-out rows.

    Raises:
        UserError: a text is missing or too short.
    """
    text = TextConfig(dataset=recipe.dataset, column=recipe.column, context_length=recipe.context_length)
    rows = pack(text, tokenizer)
    if len(rows) < 2 * recipe.batch:
        raise UserError(
            f"{recipe.dataset} has {len(rows)} sequences, too few for two steps. Provide more text or lower --batch."
        )
    if recipe.held_out is not None:
        return rows, pack(text.model_copy(update={"dataset": recipe.held_out}), tokenizer, recipe.held_out_tokens)
    share = max(1, min(recipe.held_out_tokens // recipe.context_length, len(rows) // LARGEST_HELD_OUT_SHARE))
    return rows[share:], rows[:share]


def load_or_create(recipe: Recipe, checkpoint: str | None) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the initial language model in float32, and its tokenizer.

    Raises:
        UserError: a file cannot be read, or model and tokenizer do not match.
    """
    tokenizer_source, base = checkpoint or recipe.tokenizer or recipe.base, checkpoint or recipe.base
    text = TextConfig(dataset=recipe.dataset, column=recipe.column)
    tokenizer = load_tokenizer(tokenizer_source) if tokenizer_source else train_tokenizer(text, recipe.vocabulary)
    set_seed(recipe.seed)
    module = load_module(base, torch.float32) if base else random_model(recipe.config, tokenizer)
    positions, known = (
        getattr(module.config, "max_position_embeddings", recipe.context_length),
        module.config.vocab_size,
    )
    if recipe.context_length > positions:
        raise UserError(f"The language model has {positions} positions. Use --context-length {positions} or less.")
    if len(tokenizer) > known:
        raise UserError(
            f"The tokenizer has {len(tokenizer)} tokens, but the language model has {known}. Use its own tokenizer."
        )
    tokenizer.model_max_length = positions
    embedding: Any = module.get_input_embeddings()
    embedding.padding_idx = None  # nothing is padded; a separator tokenizer_source as padding is learnt too
    return module, tokenizer


def random_model(shape: str, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Create a language model with random weights from the config of another, for a tokenizer."""
    config, separator = load_outline(shape).config, start_token_id(tokenizer)
    config.update({"vocab_size": len(tokenizer), "bos_token_id": separator, "eos_token_id": separator})
    module: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return module


def arguments(recipe: Recipe, steps: int, held_out: Rows, checkpoint: str | None) -> TrainingArguments:
    """Arguments of ``Trainer``: bfloat16 with float32 weights and optimizer state, if the hardware supports it."""
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
    """Return the newest complete checkpoint, if --resume was given.

    Raises:
        UserError: the folder has checkpoints or a model, and --resume was not given.
    """
    ends = recipe.output.glob("checkpoints/checkpoint-*/trainer_state.json")
    folders = [end.parent for end in ends if is_whole(end)]
    if not recipe.resume and (folders or (recipe.output / "config.json").exists()):
        raise UserError(
            f"{recipe.output} already contains a language model. Use --resume to continue, or another folder."
        )
    return str(max(folders, key=lambda folder: int(folder.name.rpartition("-")[2]))) if folders else None


def is_whole(state: Path) -> bool:
    """True if the checkpoint has the file that is written last."""
    try:
        return bool(read_json(state))
    except ValueError:
        return False


def train(recipe: Recipe, more: Sequence[TrainerCallback] = ()) -> None:
    """Train and write the output folder. ``more`` are callbacks of ``Trainer``.

    Raises:
        UserError: an input cannot be used.
        Interrupted: stopped on request, with a checkpoint.
    """
    keep_freed_memory()
    checkpoint = last_checkpoint(recipe)
    module, tokenizer = load_or_create(recipe, checkpoint)
    rows, held_out = split_held_out(recipe, tokenizer)
    tokens_a_step = recipe.batch * recipe.context_length
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
            callbacks=[Pace(recipe.checkpoint_minutes, tokens_a_step, Callbacks(shown, stop)), *more],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train(resume_from_checkpoint=checkpoint)
    if trainer.state.global_step < steps:
        raise Interrupted("Stopped. To continue, run the same command with --resume.", stop.exit_code)
    trainer.evaluate()
    module.config.use_cache = True  # Trainer has taken it away, and without it every token is written by reading all
    module.save_pretrained(recipe.output)
    tokenizer.save_pretrained(recipe.output)
    summary = json.dumps(record(recipe, trainer.state, rows, module.num_parameters()), indent=1)
    atomic_write(recipe.output / "training.json", summary + "\n")


def record(recipe: Recipe, state: TrainerState, rows: Rows, parameters: int) -> dict[str, Any]:
    """Contents of training.json: tokens, losses in nats, settings."""
    tokens_a_step, history = recipe.batch * recipe.context_length, state.log_history
    held_out = {entry["step"] * tokens_a_step: entry["eval_loss"] for entry in history if "eval_loss" in entry}
    losses = {entry["step"] * tokens_a_step: float(entry["loss"]) for entry in history if "loss" in entry}
    before = Path(recipe.base or "") / "training.json"
    return {
        "tokens": state.global_step * tokens_a_step,
        "tokens_of_text": rows.size,
        "parameters": parameters,
        "held_out_loss": held_out[max(held_out)],
        "held_out_losses": held_out,
        "train_losses": losses,
        "settings": recipe.model_dump(mode="json", by_alias=True),
        "before": read_json(before) if recipe.base and before.is_file() else None,
    }


def main(words: Sequence[str]) -> int:
    """Run the command line. Returns the exit code."""

    def work() -> int:
        train(recipe := parse(Recipe, words, "train_language_model.py"))
        print(f"Wrote a Hugging Face language model and training.json to {recipe.output}")
        return 0

    return guarded(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
