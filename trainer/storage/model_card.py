"""Model card of a run, as a README for the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Mapping

from mxd.trainer.config import LayerConfig, TrainConfig
from mxd.trainer.config.methods import Mixing, method_traits

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
