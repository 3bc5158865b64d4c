"""The card of a run: what it is, how well it does, and how to load it, as a README that the hub shows."""

from __future__ import annotations

from collections.abc import Mapping

from trainer.config import LayerConfig, TrainConfig

LIBRARY = "mxd-explorer"
_WHAT = {
    "mxd": "a mixture of linear decoders (MxD, arXiv 2505.21364)",
    "relu-mxd": "an MxD without a top-k",
    "batch-topk-mxd": "an MxD whose gate lets K experts through on average (BatchTopK, arXiv 2412.06410)",
    "jumprelu-mxd": "an MxD whose experts have thresholds (JumpReLU, arXiv 2407.14435)",
    "low-rank-mxd": "a mixture of low-rank experts",
    "tensor-ring-mxd": "a mixture of experts in tensor-ring form (muMoE, arXiv 2402.12550)",
    "cross-layer-mxd": "one set of experts that reads one layer and writes several (cross-layer MxD)",
    "molt": "a mixture of low-rank transforms (MOLT)",
    "peer": "a mixture of single neurons that product keys find (PEER, arXiv 2407.04153)",
    "transcoder": "a TopK transcoder",
    "skip-transcoder": "a TopK skip transcoder",
    "autoencoder": "a TopK autoencoder of what the MLP writes",
    "jumprelu-transcoder": "a transcoder with thresholds (ReLU where they are 0)",
    "jumprelu-skip-transcoder": "a skip transcoder with thresholds (ReLU where they are 0)",
}


def write_card(config: TrainConfig, layer: LayerConfig, is_on_hub: bool, figures: Mapping[str, str]) -> str:
    """Markdown with the hub's header.

    Args:
        is_on_hub: whether the language model's name is one of the hub, so that it can be linked and loaded by it.
        figures: name -> value with its unit, as measured.
    """
    return "\n".join(
        [
            *_header(config, is_on_hub),
            f"# {config.name}",
            "",
            f"{_place(config)} of {config.language_model} as {_WHAT[config.method]}, for "
            "[MxD Explorer](https://arxiv.org/abs/2505.21364): browse its experts, route text through them, steer with "
            "them.",
            "",
            *_table("fact", _facts(config, layer)),
            "",
            *(["## Figures", "", *_table("figure", figures), ""] if figures else []),
            *_loading(config, is_on_hub),
        ]
    )


def _header(config: TrainConfig, is_on_hub: bool) -> list[str]:
    base = [f"base_model: {config.language_model}"] if is_on_hub else []
    tags = ["tags:", "- interpretability", f"- {config.method}", "- safetensors"]
    return ["---", f"library_name: {LIBRARY}", *base, *tags, "---", ""]


def _place(config: TrainConfig) -> str:
    first, last = config.layers[0], config.layers[-1]
    return f"The MLP of layer {first}" if first == last else f"The MLPs of layers {first} to {last}"


def _facts(config: TrainConfig, layer: LayerConfig) -> dict[str, str]:
    facts = {
        "language model": config.language_model,
        "layer": str(config.layer) if len(config.layers) == 1 else f"{config.layers[0]} to {config.layers[-1]}",
        "method": config.method,
        "experts N": f"{layer.num_experts:,}",
        "active K": f"{layer.k:,}" if layer.smallest_k is None else f"{layer.smallest_k:,} to {layer.k:,}",
        "gate": layer.gate.in_words(),
        "hidden width H": f"{layer.hidden_width:,}",
        "activation": f"{layer.activation} ({layer.encoder})",
        "tokens fitted on": f"{config.tokens:,}" if config.tokens else "not stated",
        "text": config.text.text,
        "context": f"{config.text.context} tokens",
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
        "from trainer import LanguageModel, Run, route",
        "",
        'run = Run.from_pretrained("OWNER/NAME")  # this repository, or a folder with its files',
        f'language_model = LanguageModel.load("{named}")',
        'print(route(language_model, run, "The bridge may have cracked.").tokens[3])',
        "```",
        "",
        "or, to browse it, `mxd pull OWNER/NAME`, `mxd index`, `mxd serve`.",
        "",
    ]
