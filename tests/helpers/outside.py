"""Layers in the file formats of other libraries, with random weights and their expected outputs.

Shapes: T tokens, I input width, H hidden width, N experts.
"""

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

Answer = Callable[[Tensor], Tensor]
"""Maps the layer's input to its output, by the other library's formula."""

WIDTH, EXPERTS, K = 16, 40, 4


def numbers(*shape: int, seed: int) -> Tensor:
    """Random numbers that depend only on the seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 0.3


def transcoder(skip: bool = False, threshold: bool = False, width: int = WIDTH) -> dict[str, Tensor]:
    """Tensors of a transcoder: W_enc and W_dec [N, I], biases and optional extras."""
    tensors = {
        "W_enc": numbers(EXPERTS, width, seed=0),
        "b_enc": numbers(EXPERTS, seed=1),
        "W_dec": numbers(EXPERTS, width, seed=2),
        "b_dec": numbers(width, seed=3),
    }
    if skip:
        tensors["W_skip"] = numbers(width, width, seed=4)
    if threshold:
        tensors["threshold"] = numbers(EXPERTS, seed=5).abs()
    return tensors


def answer(tensors: dict[str, Tensor], k: int | None) -> Answer:
    """Output of a transcoder with these tensors, with K active features or all above their thresholds."""

    def write(x_TI: Tensor) -> Tensor:
        scores_TN = x_TI @ tensors["W_enc"].T + tensors["b_enc"]
        active_TN = F.relu(scores_TN) * (scores_TN > tensors.get("threshold", torch.zeros(EXPERTS)))
        if k is not None:
            top = active_TN.topk(k, dim=1)
            active_TN = torch.zeros_like(active_TN).scatter(1, top.indices, top.values)
        skipped = x_TI @ tensors["W_skip"].T if "W_skip" in tensors else 0
        return active_TN @ tensors["W_dec"] + tensors["b_dec"] + skipped

    return write


def save_sparsify(folder: Path, skip: bool = False, width: int = WIDTH, **settings: Any) -> Answer:
    tensors = transcoder(skip, width=width)
    names = {"W_enc": "encoder.weight", "b_enc": "encoder.bias"}
    folder.mkdir(parents=True)
    save_file({names.get(name, name): value for name, value in tensors.items()}, folder / "sae.safetensors")
    config = {"activation": "topk", "expansion_factor": 32, "normalize_decoder": True, "num_latents": EXPERTS, "k": K}
    config |= {"multi_topk": False, "skip_connection": skip, "transcode": True, "d_in": width}
    (folder / "cfg.json").write_text(json.dumps(config | settings))
    return answer(tensors, K)


def save_clt_training(folder: Path, branch: Literal["mxd", "molt"], shift: float = 0.0, **settings: Any) -> Answer:
    """Write a hookpoint folder in the format of a branch of clt-training: an MxD that mixes hidden units."""
    hidden = 3 * WIDTH
    mixing_bias, output_bias = ("b_mxd_dec", "b_dec") if branch == "mxd" else ("b_dec", "b_mxd_dec")
    tensors = {
        "encoder.weight": numbers(EXPERTS, WIDTH, seed=20),
        "encoder.bias": numbers(EXPERTS, seed=21),
        "W_mxd_in": numbers(hidden, WIDTH, seed=22),
        "b_mxd_enc": numbers(hidden, seed=23),
        "W_dec": numbers(EXPERTS, hidden, seed=24),
        "W_mxd_out": numbers(WIDTH, hidden, seed=25),
        mixing_bias: numbers(hidden, seed=26),
        output_bias: numbers(WIDTH, seed=27),
    }
    extras = {"post_enc": torch.full((EXPERTS,), shift)} if branch == "molt" else {}
    config: dict[str, Any] = {"activation": "topk", "num_latents": EXPERTS, "k": K, "transcode": True, "d_in": WIDTH}
    config |= {"mxd": True, "mxd_encoder_activation": "none"} if branch == "mxd" else {"mxd_h": 3, "molt_n": 0}
    folder.mkdir(parents=True)
    save_file(tensors | extras, folder / "sae.safetensors")
    (folder / "cfg.json").write_text(json.dumps(config | settings))

    def write(x_TI: Tensor) -> Tensor:
        top = F.relu(x_TI @ tensors["encoder.weight"].T + tensors["encoder.bias"]).topk(K, dim=1)
        mixed_TH = torch.einsum("tk,tkh->th", top.values, tensors["W_dec"][top.indices]) + tensors[mixing_bias]
        hidden_TH = x_TI @ tensors["W_mxd_in"].T + tensors["b_mxd_enc"]
        return (mixed_TH * hidden_TH) @ tensors["W_mxd_out"].T + tensors[output_bias]

    return write


def save_saelens(folder: Path, architecture: str = "transcoder", **settings: Any) -> Answer:
    tensors = transcoder("skip" in architecture, "jumprelu" in architecture)
    folder.mkdir(parents=True)
    kept = tensors | {"W_enc": tensors["W_enc"].T.contiguous()}
    save_file(kept, folder / "sae_weights.safetensors")
    metadata = {
        "sae_lens_version": "6.12.1",
        "model_name": "gpt2",
        "hook_name": "blocks.1.ln2.hook_normalized",
        "hook_name_out": "blocks.1.hook_mlp_out",
        "context_size": 64,
        "dataset_path": "some-one/text",
    }
    config: dict[str, Any] = {"d_in": WIDTH, "d_sae": EXPERTS, "d_out": WIDTH, "dtype": "float32", "device": "cpu"}
    config |= {"apply_b_dec_to_input": False, "normalize_activations": "none", "reshape_activations": "none"}
    config |= {"architecture": architecture, "metadata": metadata | settings.pop("metadata", {})}
    (folder / "cfg.json").write_text(json.dumps(config | settings))
    return answer(tensors, None)


def save_circuit_tracer(folder: Path, threshold: bool = True, config: str = "") -> Answer:
    """Write a circuit-tracer set of three identical layers."""
    tensors = transcoder(threshold=threshold)
    folder.mkdir(parents=True)
    names = {"threshold": "activation_function.threshold"}
    for layer in range(3):
        kept = {names.get(name, name): value for name, value in tensors.items()}
        save_file(kept, folder / f"layer_{layer}.safetensors")
    hooks = 'feature_input_hook: "mlp.hook_in"\nfeature_output_hook: "mlp.hook_out"\n'
    (folder / "config.yaml").write_text(config or f'model_name: "tiny"\nmodel_kind: "transcoder_set"\n{hooks}')
    return answer(tensors, None)


def mixture(glu: bool) -> dict[str, Tensor]:
    """Tensors of an MxD under the names of the paper's code."""
    hidden = 20
    tensors = {
        "W_enc": numbers(WIDTH, hidden, seed=10),
        "b_enc": numbers(hidden, seed=11),
        "W_dec": numbers(hidden, WIDTH, seed=12),
        "gate": numbers(EXPERTS, WIDTH, seed=13),
        "gate_bias": numbers(EXPERTS, seed=14),
        "W_cond": numbers(WIDTH, EXPERTS, seed=15),
        "b_dec": torch.zeros(WIDTH),
        "b_dec_out": numbers(WIDTH, seed=16),
    }
    if glu:
        tensors |= {"W_glu.weight": numbers(hidden, WIDTH, seed=17), "W_glu.bias": numbers(hidden, seed=18)}
    return tensors


def save_checkpoint(path: Path, monkeypatch: pytest.MonkeyPatch, glu: bool = False, **settings: Any) -> Answer:
    """Write a checkpoint in the format of the paper's code: a pickle that contains an object of its own class."""
    module = types.ModuleType("sae_training.config")
    kind = type("LanguageModelSAERunnerConfig", (), {"__module__": module.__name__})
    module.__dict__[kind.__name__] = kind
    tensors, more = mixture(glu), settings.pop("tensors", {})
    values: dict[str, Any] = {
        "hook_point": "blocks.1.ln2.hook_normalized",
        "out_hook_point": "blocks.1.hook_mlp_out",
        "is_transcoder": True,
        "use_conditional": True,
        "use_glu": glu,
        "use_skip": False,
        "topk": K,
        "mlp_activation_fn": "gelu",
        "dataset_path": "some-one/text",
        "total_training_tokens": 480_000_000,
        "context_size": 128,
        "dtype": torch.float32,
    }
    config = kind()
    config.__dict__.update(values | settings)
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "sae_training", types.ModuleType("sae_training"))
        patched.setitem(sys.modules, module.__name__, module)
        torch.save({"cfg": config, "state_dict": tensors | more}, path)

    def write(x_TI: Tensor) -> Tensor:
        activation: Answer = F.silu if config.__dict__["mlp_activation_fn"] == "silu" else F.gelu
        hidden_TH = activation(x_TI @ tensors["W_enc"] + tensors["b_enc"])
        if glu:
            hidden_TH = hidden_TH * (x_TI @ tensors["W_glu.weight"].T + tensors["W_glu.bias"])
        scores_TN = F.relu(x_TI @ tensors["gate"].T + tensors["gate_bias"])
        top = scores_TN.topk(K, dim=1)
        active_TN = torch.zeros_like(scores_TN).scatter(1, top.indices, top.values)
        return (active_TN @ tensors["W_cond"].T) * (hidden_TH @ tensors["W_dec"]) + tensors["b_dec_out"]

    return write
