"""Evaluate steered and replaced models with lm-evaluation-harness on a local task: FOLDER → largest difference.

The log-likelihoods of the harness are compared with those of the plain model in the same block.
"""

import json
from pathlib import Path
from typing import Any

import torch
from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from torch import Tensor
from transformers import PreTrainedModel

from tests.interop.oracles.small_runs import SmallRun, differences_of, report

DOCUMENTS = [{"text": "the old fox", "choices": [" ran", " sang"]}, {"text": "a very red", "choices": [" dog", " fox"]}]


def write_task(folder: Path) -> TaskManager:
    """Write the task ``local``: which of two continuations is more probable."""
    folder.mkdir()
    (folder / "documents.jsonl").write_text("".join(json.dumps(it) + "\n" for it in DOCUMENTS))
    task = {
        "task": "local",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / "documents.jsonl")}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{text}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": 0,
        "target_delimiter": "",
    }
    (folder / "local.yaml").write_text(json.dumps(task))
    return TaskManager(include_path=str(folder), include_defaults=False)


def differences(small: SmallRun, folder: Path) -> dict[str, float]:
    """Largest differences of log-likelihoods of the continuations."""
    tasks = write_task(folder)

    def by_harness(_use: str) -> Tensor:
        model = HFLM(pretrained=small.model, tokenizer=small.tokenizer, batch_size=1)
        result: Any = simple_evaluate(
            model=model, tasks=["local"], task_manager=tasks, bootstrap_iters=0, log_samples=True, verbosity="ERROR"
        )
        responses = [it for sample in result["samples"]["local"] for it in sample["filtered_resps"]]
        return torch.tensor([float(response[0]) for response in responses])

    @torch.no_grad()
    def by_hand(model: PreTrainedModel) -> Tensor:
        values = []
        for document in DOCUMENTS:
            for choice in document["choices"]:
                start = small.tokenizer(document["text"])["input_ids"]
                ids = torch.tensor([start + small.tokenizer(choice, add_special_tokens=False)["input_ids"]])
                log_probabilities = model(ids).logits[0, :-1].log_softmax(-1)
                each = log_probabilities.gather(1, ids[0, 1:, None]).squeeze(1)
                values.append(each[len(start) - 1 :].sum())
        return torch.stack(values)

    return differences_of(small, small.model, by_harness, by_hand)


report("lm-eval", differences)
