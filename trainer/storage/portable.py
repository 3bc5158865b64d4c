"""Runs that leave this machine: their tokenizer, model card and README.

Model card of a run, as a README for the Hugging Face Hub.

Portable copies of a run, without local paths.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from mxd.trainer.config import LayerConfig, Origin, TrainConfig
from mxd.trainer.config.layer import Mixing, method_traits
from mxd.trainer.errors import UserError
from mxd.trainer.utils.files import disk_errors

LIBRARY = "mxd-explorer"
MIXINGS: Mapping[Mixing, str] = {
    "paper": "a C, the paper's exact form; it can become constant, so check the routing share",
    "centred": "a C minus its median over the training tokens, which excludes a constant mixing",
}
"""Mixing of an MxD, for the card."""
WITH_CONSTANT = "a C plus a learned constant, which may replace the routing, so check the routing share"
"""Mixing of an MxD that mixes hidden units and is not centred."""


def write_card(config: TrainConfig, layer: LayerConfig, is_on_hub: bool, figures: Mapping[str, str]) -> str:
    """Return the model card as Markdown with the Hub's metadata header.

    Args:
        is_on_hub: whether the language model's name is a Hub name, which can be linked.
        figures: measured values, name -> value with unit.
    """
    return "\n".join(
        [
            *_header(config, is_on_hub),
            f"# {config.name}",
            "",
            f"{_place(config)} of {config.language_model} as {method_traits(config.method).summary}, for "
            "[MxD Explorer](https://arxiv.org/abs/2505.21364): browse its experts, route text and steer "
            "generations.",
            "",
            *_table("setting", _facts(config, layer)),
            "",
            *(["## Metrics", "", *_table("metric", figures), ""] if figures else []),
            *_loading(config, is_on_hub),
        ]
    )


def _header(config: TrainConfig, is_on_hub: bool) -> list[str]:
    base = [f"base_model: {config.language_model}"] if is_on_hub else []
    tags = ["tags:", "- interpretability", f"- {config.method}", "- safetensors"]
    return ["---", f"library_name: {LIBRARY}", *base, *tags, "---", ""]


def _place(config: TrainConfig) -> str:
    return f"The MLP of layer {config.layer}"


def _mixture_facts(layer: LayerConfig) -> dict[str, str]:
    """Facts about an MxD; none for other methods."""
    if not layer.method.endswith("mxd"):
        return {}
    hidden = {"hidden width H": f"{layer.hidden_width:,}"}
    if method_traits(layer.method).mixes_hidden:
        return {"mixing": WITH_CONSTANT if layer.mixing == "paper" else MIXINGS["centred"], **hidden}
    return {"mixing": MIXINGS[layer.mixing], **hidden, "activation": f"{layer.activation} ({layer.encoder})"}


def _facts(config: TrainConfig, layer: LayerConfig) -> dict[str, str]:
    facts = {
        "language model": config.language_model,
        "layer": str(config.layer),
        "method": config.method,
        "experts N": f"{layer.num_experts:,}",
        "active K": f"{layer.k:,}" if layer.min_k is None else f"{layer.min_k:,} to {layer.k:,}",
        **_mixture_facts(layer),
        "training tokens": f"{config.tokens:,}" if config.tokens else "not stated",
        "dataset": config.text.dataset,
        "context length": f"{config.text.context_length} tokens",
    }
    if config.origin is None:
        return facts | {"learning rate": f"{config.optimizer.learning_rate:g}", "seed": str(config.seed)}
    origin = config.origin
    return facts | {
        "imported from": f"{origin.format}: {origin.source} {origin.part}".strip(),
        "SHA-256": origin.sha256,
    }


def _table(head: str, rows: Mapping[str, str]) -> list[str]:
    lines = [f"| {name} | {value.replace('|', chr(92) + '|')} |" for name, value in rows.items()]
    return [f"| {head} | |", "|---|---|", *lines]


def _loading(config: TrainConfig, is_on_hub: bool) -> list[str]:
    named = config.language_model if is_on_hub else f"FOLDER/{config.language_model}"
    return [
        "## Use it",
        "",
        "```python",
        "import mxd",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        'layer = mxd.load("OWNER/NAME")  # this repo, or a local copy',
        f'model = AutoModelForCausalLM.from_pretrained("{named}")',
        f'tokenizer = AutoTokenizer.from_pretrained("{named}")',
        'batch = tokenizer(["The bridge may have cracked."], return_tensors="pt")',
        "print(layer.activations(model, batch))  # sparse, [1, tokens, experts]",
        "```",
        "",
        "To browse it, run `mxd pull OWNER/NAME`, `mxd index` and `mxd serve`.",
        "",
    ]


TOKENIZER_FILES = ("*.json", "*.txt", "*.model", "*.jinja")
"""Tokenizer files to copy. None of them is code or a pickle."""


def portable(config: TrainConfig, language_model: str | None) -> TrainConfig:
    """Return the config without local paths: only their last component is kept.

    Args:
        language_model: public name of the language model; None keeps the config's name.
    """
    origin = config.origin
    return config.model_copy(
        update={
            "language_model": language_model or without_folder(config.language_model),
            "text": config.text.model_copy(update={"dataset": without_folder(config.text.dataset)}),
            "origin": origin and Origin.model_validate(origin.model_dump() | {"source": without_folder(origin.source)}),
        }
    )


def is_hub_name(source: str) -> bool:
    """Return whether a language model is a Hugging Face Hub name rather than a local folder."""
    return not Path(source).expanduser().exists() and source.count("/") <= 1 and not source.startswith((".", "/", "~"))


def without_folder(source: str) -> str:
    """Return a Hub name as it is, and of a local path only its last component."""
    return source if is_hub_name(source) else Path(source).expanduser().resolve().name


def check_empty_folder(folder: Path) -> None:
    """Check that a target folder is new or empty.

    Raises:
        UserError: it is not.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"The target folder is not empty: {folder}. Choose a new one.")


def check_no_links(folder: Path) -> None:
    """Check that a stranger's folder links to no other: the target, which may be private, would be copied.

    The Hub's cache links from its snapshots to its own ``blobs``.

    Raises:
        UserError: it does.
    """
    root = folder.resolve()
    inside = (root, *([root.parent.parent / "blobs"] if root.parent.name == "snapshots" else []))
    for path in sorted(root.rglob("*")):
        if path.is_symlink() and not any(path.resolve().is_relative_to(place) for place in inside):
            raise UserError(f"{path} links to another folder. Replace the link with the file, if you trust the folder.")


def copy_files(paths: Iterable[Path], target: Path) -> None:
    """Copy the files that exist."""
    with disk_errors(target):
        target.mkdir(parents=True, exist_ok=True)
        for path in paths:
            if path.is_file():
                shutil.copyfile(path, target / path.name)


def copy_tokenizer(source: Path, target: Path) -> None:
    """Copy a tokenizer."""
    copy_files(sorted(path for pattern in TOKENIZER_FILES for path in source.glob(pattern)), target)
