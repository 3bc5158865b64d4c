"""Language models that are loaded in part: only the blocks that run, or sharded over processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from mxd.trainer.language_model.loading import is_shard
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.utils.distributed import init_process_group
from tests.helpers.forking.torchrun import run_processes
from tests.helpers.language_models import CONFIGS, OTHER_CACHES, saved_language_model

IDS_BT = torch.arange(1, 61).view(3, 20)
LAYER = 1


def captured(language_model: LanguageModel) -> MlpActivations:
    return language_model.capture(LAYER, IDS_BT)


@pytest.mark.parametrize("family", [*CONFIGS, *OTHER_CACHES])
def test_the_blocks_that_run_are_enough(family: str, tmp_path: Path) -> None:
    folder = str(saved_language_model(tmp_path, family))
    whole, part = LanguageModel.load(folder), LanguageModel.load(folder, last_layer=LAYER)
    for ours, theirs in zip(captured(part), captured(whole), strict=True):
        assert torch.equal(ours, theirs)
    shares_states = family == "gemma3n"  # between its last blocks, so that which ones depends on their number
    assert len(part.architecture.blocks) == (len(whole.architecture.blocks) if shares_states else LAYER + 1)
    assert len(LanguageModel.load(folder, last_layer=99).architecture.blocks) == len(whole.architecture.blocks)


def compare() -> None:
    """Compare the sharded language models of the command line with whole ones."""
    sharding, *folders = sys.argv[1:]
    with init_process_group() as group:
        for folder in folders:
            whole = LanguageModel.load(folder)
            assert sharding in ("fsdp", "tp")
            part = LanguageModel.load(folder, last_layer=LAYER, sharding=sharding)  # type: ignore[arg-type]
            shards = [weight for weight in part.architecture.blocks.parameters() if is_shard(weight)]
            stored = sum(weight.to_local().numel() for weight in shards)
            total = sum(weight.numel() for weight in part.architecture.blocks.parameters())
            assert stored < 0.6 * total, (folder, stored, total)
            for _ in range(2):  # a pass that ended early must not change the next one
                for ours, theirs in zip(captured(part), captured(whole), strict=True):
                    torch.testing.assert_close(ours, theirs, rtol=0, atol=0 if sharding == "fsdp" else 1e-5)
            torch.testing.assert_close(part.encoder_weights(LAYER), whole.encoder_weights(LAYER), rtol=0, atol=0)
            full = LanguageModel.load(folder, sharding=sharding)  # type: ignore[arg-type]
            difference = (full.logits(IDS_BT) - whole.logits(IDS_BT)).abs().max()
            assert difference <= (0 if sharding == "fsdp" else 1e-5), (folder, difference)
        group.barrier()


@pytest.mark.parametrize(
    ("sharding", "families"),
    [("fsdp", ["gpt2", "llama", "opt", "qwen3"]), ("tp", ["llama", "qwen3", "gemma2"])],
)
def test_sharded_language_models_equal_whole_ones(sharding: str, families: list[str], tmp_path: Path) -> None:
    folders = [str(saved_language_model(tmp_path / family, family)) for family in families]
    done = run_processes(compare, sharding, *folders)
    assert [one.returncode for one in done] == [0, 0], [one.stderr for one in done]
