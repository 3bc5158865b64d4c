"""MLP activations on disk, so that layers train without the language model's forward passes.

A cache holds the activation buffers of one text in the order of training:

    cache.json                                   settings, and the SHA-256 hash of each file of the complete buffers
    layer-10/00003.safetensors                   ``input`` and ``output`` of buffer 3, bfloat16, one row per token
    layer-10/00003-00001-of-00002.safetensors    the same if two processes began the cache: the first one's sequences

Any number of processes can continue or read a cache. Each opens only the files that hold its sequences. A job may read
a cache while another one writes it, and waits for each buffer.

Training on a cache takes the same batches as training on the language model, up to the rounding to bfloat16. A run of
more tokens than the cache holds reads it again, with another order of the tokens in each buffer.

Shapes: T tokens in a buffer, I input width, O output width.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from itertools import count
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import PreTrainedTokenizerBase

from mxd.trainer.config.base import Config
from mxd.trainer.config.training import TextConfig
from mxd.trainer.data.activations import ActivationBuffer, StreamSpec, capture_layers, shuffled_tokens
from mxd.trainer.data.sequences import TEXT_START, TextPosition, TextProgress, fingerprint, sequence_batches
from mxd.trainer.errors import CancelledError, LockedError, NotFoundError, UserError, WriterLostError
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.language_model.tokenizer import start_token_name, with_start_token
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
from mxd.trainer.utils.distributed import SINGLE_PROCESS, ProcessGroup
from mxd.trainer.utils.files import atomic_write, disk_errors, exclusive_lock, explained, is_locked, read_json, sha256

MANIFEST = "cache.json"
TENSORS = ("input", "output")
LOCK_FILE = ".lock"
"""Held by the job that writes the cache, so that a slow job differs from one that has ended."""
POLL_SECONDS = 0.5
"""Time between two looks at a cache that another job writes."""


class CacheManifest(Config):
    language_model: str
    """Hub name, folder or GGUF file of the language model."""
    language_model_dtype: str
    """Data type of the forward passes."""
    text: TextConfig
    text_fingerprint: str
    """Fingerprint of the dataset's files."""
    seed: int
    layers: tuple[int, ...]
    buffer_tokens: int
    default_start_token: str
    """Start token of a text that names none."""
    tokens: int
    parts: int = 1
    """Files per buffer and layer: the number of processes that began the cache."""
    step_sequences: int = 1
    """Sequences per step, whose division over as many processes is that of a buffer over the parts."""
    files: dict[str, str] = Field(default_factory=dict)
    """SHA-256 hash of each file of the complete buffers, by its path inside the cache."""
    next_text: TextPosition = TEXT_START
    """Position in the text at or before the first sequence of the next buffer."""

    @classmethod
    def from_stream(cls, stream: StreamSpec, language_model: LanguageModel, parts: int) -> Self:
        return cls(
            language_model=stream.language_model,
            language_model_dtype=str(language_model.dtype).removeprefix("torch."),
            text=with_start_token(stream.text, language_model.tokenizer),
            default_start_token=start_token_name(language_model.tokenizer),
            text_fingerprint=fingerprint(stream.text),
            seed=stream.seed,
            layers=stream.layers,
            buffer_tokens=stream.plan.buffer_tokens,
            tokens=stream.plan.tokens,
            parts=parts,
            step_sequences=stream.plan.sequences,
        )

    def part_of_sequences(self, buffer: int) -> npt.NDArray[np.int64]:
        """Index of the part that holds each sequence of a buffer, [S]."""
        context = self.text.context_length
        held = min(self.buffer_tokens, self.tokens - buffer * self.buffer_tokens) // context
        return np.arange(held) % self.step_sequences * self.parts // self.step_sequences

    @property
    def complete_buffers(self) -> int:
        return len(self.files) // (len(self.layers) * self.parts)

    @property
    def is_complete(self) -> bool:
        return self.complete_buffers * self.buffer_tokens >= self.tokens


def write_cache(
    folder: Path,
    stream: StreamSpec,
    language_model: LanguageModel,
    group: ProcessGroup = SINGLE_PROCESS,
    callbacks: Callbacks = NO_CALLBACKS,
) -> CacheManifest:
    """Write the activations of a stream, or those that an interrupted call has not written. Return the manifest, which
    is incomplete if cancelled. Collective.

    Each process writes its parts of every buffer. The main process then makes the buffer visible in ``cache.json``.

    Raises:
        LockedError: another job is writing it.
        UserError: the folder holds a cache of other settings, the disk is full, the text is too short, or the processes
            cannot divide the parts.
    """
    stream.plan.shard(group)
    with _only_writer(folder, group):
        manifest = _started(folder, CacheManifest.from_stream(stream, language_model, group.world_size))
        if language_model.sharding is not None and manifest.parts % group.world_size:
            raise UserError(
                f"{manifest.parts} processes began the cache {folder}. With a sharded model, continue it with as many, "
                "or use --shard-model=none."
            )
        first, progress = manifest.complete_buffers, TextProgress(manifest.next_text)
        stream_ids = stream.token_ids(language_model.tokenizer, first, progress)
        for index, rows_SC in enumerate(stream_ids, start=first):
            if group.any(callbacks.is_cancelled()):
                break
            files = _write_parts(folder, manifest, index, rows_SC, stream, language_model, group)
            files = manifest.files | dict(group.all_items(list(files.items())))
            manifest = manifest.model_copy(update={"files": files, "next_text": progress.position})
            if group.is_main:
                atomic_write(folder / MANIFEST, manifest.model_dump_json(indent=1))
            callbacks.on_progress(min(manifest.tokens, (index + 1) * manifest.buffer_tokens), manifest.tokens, "")
        group.barrier()  # the manifest is up to date
    return manifest


@contextmanager
def _only_writer(folder: Path, group: ProcessGroup) -> Iterator[None]:
    """Hold the lock of a cache. Collective."""
    task, refusal = f"The cache {folder} is being written", None
    with ExitStack() as held:
        if group.is_main:
            try:
                held.enter_context(exclusive_lock(folder / LOCK_FILE, task))
            except LockedError as error:
                refusal = error
        if group.any(refusal is not None):
            raise refusal or LockedError(task)
        yield


def _awaited(folder: Path, buffer: int, is_cancelled: Callable[[], bool], group: ProcessGroup) -> CacheManifest | None:
    """Manifest of a cache once a buffer is complete, its writer has ended, or the task is cancelled; None if it has no
    buffer yet. Collective: the same in all processes."""

    def wait() -> CacheManifest | None:
        while True:
            is_written = is_locked(folder / LOCK_FILE)  # first, because a writer may end right after its last buffer
            manifest = _read_manifest(folder) if (folder / MANIFEST).is_file() else None
            is_complete = manifest is not None and manifest.complete_buffers > buffer
            if is_complete or not is_written or is_cancelled():
                return manifest
            time.sleep(POLL_SECONDS)

    manifest = group.take_turn(wait)
    return next(iter(group.all_items([] if manifest is None else [manifest])), None)


def _started(folder: Path, manifest: CacheManifest) -> CacheManifest:
    if not (folder / MANIFEST).is_file():
        return manifest
    existing = _read_manifest(folder)
    progress = {"files", "parts", "step_sequences", "next_text"}
    if existing.model_dump(exclude=progress) != manifest.model_dump(exclude=progress):
        raise UserError(f"{folder} holds a cache with other settings. Choose another folder, or delete it.")
    return existing


def _write_parts(
    folder: Path,
    manifest: CacheManifest,
    index: int,
    rows_SC: npt.NDArray[np.int64],
    stream: StreamSpec,
    language_model: LanguageModel,
    group: ProcessGroup,
) -> dict[str, str]:
    """Write this process's parts of a buffer. Returns the hashes of their files."""
    files: dict[str, str] = {}
    part_S = manifest.part_of_sequences(index)
    for part in range(group.rank, manifest.parts, group.world_size):
        own = np.flatnonzero(part_S == part).tolist()
        for layer, activations in capture_layers(language_model, stream.layers, rows_SC, own).items():
            name = _file_name(layer, index, part, manifest.parts)
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with disk_errors(folder / name):
                tensors = {key: value.bfloat16() for key, value in zip(TENSORS, activations, strict=True)}
                save_file(tensors, folder / name)
                files[name] = _sha256(folder / name)
    return files


@dataclass
class ActivationCache:
    """An existing cache, as a source of activation buffers."""

    folder: Path
    manifest: CacheManifest
    """As last read: another job may be writing the cache."""
    device: torch.device
    is_cancelled: Callable[[], bool] | None = None
    """Function that says whether to stop waiting for the job that writes the cache; None without such a job."""
    verified: set[str] = dataclass_field(default_factory=set)
    """Files whose checksum has been compared."""

    @classmethod
    def open(cls, folder: Path, device: torch.device) -> Self:
        """Open a cache. Raises NotFoundError (there is none in ``folder``) or UserError (it is damaged, or not a single
        buffer is complete)."""
        manifest = _read_manifest(folder)
        if not manifest.complete_buffers:
            raise UserError(
                f"The cache {folder} is still empty. Run the same 'mxd train --cache' again to continue it."
            )
        return cls(folder, manifest, device)

    @property
    def is_independent(self) -> bool:
        """True if each process reads for itself, because no job writes the cache any more."""
        return self.is_cancelled is None

    @property
    def tokens(self) -> int:
        """Number of tokens of the complete buffers, or of all that are being written."""
        if self.is_cancelled is not None:
            return self.manifest.tokens
        return min(self.manifest.tokens, self.manifest.complete_buffers * self.manifest.buffer_tokens)

    def check_text(self, text: TextConfig, tokens: int) -> None:
        """Check that the cache holds ``tokens`` tokens of a text. Raises UserError if it was written with another text,
        other settings, or has too few tokens."""
        self._check_equal("dataset", self.manifest.text_fingerprint, fingerprint(text))
        if text.start_token is None:
            text = text.model_copy(update={"start_token": self.manifest.default_start_token})
        self._check_equal("dataset settings", _without_path(self.manifest.text), _without_path(text))
        if tokens > self.tokens:
            raise UserError(f"The cache {self.folder} holds {self.tokens:,} tokens. Lower --tokens to that.")

    def check(self, stream: StreamSpec) -> None:
        """Check that the cache has the batches of a stream. Raises UserError if it was written with other settings,
        lacks a layer, or has too few tokens."""
        manifest, plan = self.manifest, stream.plan
        self._check_equal("language model", manifest.language_model, stream.language_model)
        self.check_text(stream.text, 0)
        self._check_equal("--data-seed", manifest.seed, stream.seed)
        self._check_equal("--buffer-tokens", manifest.buffer_tokens, plan.buffer_tokens)
        if missing := set(stream.layers) - set(manifest.layers):
            raise UserError(f"The cache {self.folder} lacks layer {min(missing)}. It has {list(manifest.layers)}.")
        if plan.tokens > self.tokens and stream.text.on_short_text != "repeat":
            raise UserError(
                f"The cache {self.folder} holds {self.tokens:,} tokens, but {plan.tokens:,} are required. Add "
                "--on-short-text=repeat to read it more than once."
            )

    def _check_equal(self, name: str, cached: object, required: object) -> None:
        if cached != required:
            raise UserError(f"The cache {self.folder} was written with another {name}: {cached}, not {required}.")

    def buffers(
        self,
        stream: StreamSpec,
        first_buffer: int = 0,
        group: ProcessGroup = SINGLE_PROCESS,
        start: TextPosition = TEXT_START,  # noqa: ARG002  # a cache needs no text
    ) -> Generator[ActivationBuffer]:
        """Yield the buffers of a stream from index ``first_buffer`` on, like ``LiveActivations``.

        While another job writes the cache, wait for each buffer. End early if cancelled meanwhile.

        Raises:
            WriterLostError: that job has ended before a buffer was complete.
            UserError: a file is damaged, or steps cannot be divided evenly over the processes.
        """
        plan, shard = stream.plan, stream.plan.shard(group)
        for index in count(first_buffer):
            left = plan.tokens // plan.context_length - index * plan.sequences_per_buffer
            if left <= 0:
                return
            rows = min(left, plan.sequences_per_buffer)
            source = index  # or of the same cached tokens again, of which only full buffers are
            if index * plan.buffer_tokens + rows * plan.context_length > self.tokens:
                source = index % max(1, self.tokens // plan.buffer_tokens)
            if source >= self.manifest.complete_buffers:
                assert self.is_cancelled is not None, "only complete buffers of other caches are read"
                self.manifest = _awaited(self.folder, source, self.is_cancelled, group) or self.manifest
            if source >= (complete := self.manifest.complete_buffers):
                if group.any(self.is_cancelled is None or self.is_cancelled()):
                    return
                raise WriterLostError(
                    f"The process that wrote the cache {self.folder} has ended after "
                    f"{complete * self.manifest.buffer_tokens:,} of {self.manifest.tokens:,} tokens. The run is saved. "
                    "Start that process again to continue the cache, then this one with --resume."
                )
            local = [number for number in range(rows) if number % plan.sequences in shard]
            captured = {layer: self.activations(layer, source, local) for layer in stream.layers}
            yield ActivationBuffer(captured, shuffled_tokens(stream, index, rows, shard).to(self.device))
            del captured  # so that two buffers are never in memory

    def token_ids(self, text: TextConfig, tokenizer: PreTrainedTokenizerBase) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the token ids [S, C] of each complete buffer. ``text`` is that of the cache, for which ``check_text``
        passes; it may have moved since."""
        each = self.manifest.buffer_tokens // text.context_length
        return sequence_batches(text, tokenizer, self.tokens, self.manifest.seed, "shuffled", each)

    def activations(self, layer: int, index: int, wanted: Sequence[int] | None = None) -> MlpActivations:
        """Activations of buffer ``index``, float32, in the order of ``token_ids``: of all its sequences, or of the
        ``wanted`` ones. Raises UserError if the cache lacks the layer, or a file is damaged."""
        context, part_S = self.manifest.text.context_length, self.manifest.part_of_sequences(index)
        wanted_R = np.arange(len(part_S)) if wanted is None else np.array(wanted)
        part_R = part_S[wanted_R]
        parts = np.unique(part_R).tolist()
        joined: MlpActivations | None = None
        for part in parts:
            name = _file_name(layer, index, part, self.manifest.parts)
            if name not in self.manifest.files:
                raise UserError(f"The cache {self.folder} lacks layer {layer}. It has {list(self.manifest.layers)}.")
            path = self.folder / name
            if name not in self.verified:  # once, because a GPU trains faster than this can hash
                if _sha256(path) != self.manifest.files[name]:
                    raise UserError(f"{path} is damaged. Delete the cache; 'mxd train --cache' writes it again.")
                self.verified.add(name)
            with safe_open(path, framework="pt") as file:
                held = MlpActivations(*(file.get_tensor(name).to(self.device, torch.float32) for name in TENSORS))
            held_P = np.flatnonzero(part_S == part)
            rows_R = torch.from_numpy(np.searchsorted(held_P, wanted_R[part_R == part]))
            if len(parts) == 1 and len(rows_R) == len(held_P):  # a selection would be a copy
                return held
            if joined is None:
                rows = len(wanted_R) * context
                joined = MlpActivations(*(values.new_empty(rows, values.shape[1]) for values in held))
            is_held_R = torch.from_numpy(part_R == part)
            for target, values in zip(joined, held, strict=True):
                target.unflatten(0, (-1, context))[is_held_R] = values.unflatten(0, (-1, context))[rows_R]
        assert joined is not None, "a process has at least one sequence of every buffer"
        return joined


def filled_cache(
    folder: Path,
    stream: StreamSpec,
    language_model: LanguageModel,
    group: ProcessGroup = SINGLE_PROCESS,
    callbacks: Callbacks = NO_CALLBACKS,
) -> ActivationCache:
    """Open the cache in ``folder``. If there is none or it is incomplete, first write the activations of ``stream``.

    If another job is writing it, the cache is returned once its first buffer is complete, and its ``buffers`` wait for
    the others. Collective.

    Raises:
        CancelledError: writing was cancelled. What has been written remains.
        UserError: as ``write_cache`` and ``ActivationCache.open``.
    """
    stopped = "Stopped. To continue the cache, run the same command again."
    while group.any(not ((folder / MANIFEST).is_file() and _read_manifest(folder).is_complete)):
        try:
            if not write_cache(folder, stream, language_model, group, callbacks).is_complete:
                raise CancelledError(stopped)
        except LockedError:
            manifest = _awaited(folder, 0, callbacks.is_cancelled, group)
            if manifest is not None:
                return ActivationCache(folder, manifest, language_model.device, callbacks.is_cancelled)
            if group.any(callbacks.is_cancelled()):
                raise CancelledError(stopped) from None
    return ActivationCache.open(folder, language_model.device)


def _file_name(layer: int, index: int, part: int, parts: int) -> str:
    suffix = "" if parts == 1 else f"-{part + 1:05d}-of-{parts:05d}"
    return f"layer-{layer}/{index:05d}{suffix}.safetensors"


def _sha256(path: Path) -> str:
    try:
        return sha256(path)
    except OSError as error:
        raise UserError(
            f"Cannot read {path}: {error.strerror}. Delete the cache; 'mxd train --cache' writes it again."
        ) from error


def _without_path(text: TextConfig) -> TextConfig:
    return text.model_copy(update={"dataset": "", "on_short_text": "fail"})


def _read_manifest(folder: Path) -> CacheManifest:
    path = folder / MANIFEST
    if not path.is_file():
        raise NotFoundError(f"No activation cache in {folder}. Write one with 'mxd train MODEL --cache {folder}'.")
    with explained(f"{path} is damaged. Delete the cache; 'mxd train --cache' writes it again.", ValueError):
        return CacheManifest.model_validate(read_json(path))
