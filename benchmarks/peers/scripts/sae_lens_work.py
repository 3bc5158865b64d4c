"""SAELens and TransformerLens: a pair with TransformerBridge, routing with a top-k SAE, training of an autoencoder."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sae_lens import (
    LanguageModelSAERunnerConfig,
    LanguageModelSAETrainingRunner,
    LoggingConfig,
    TopKSAE,
    TopKSAEConfig,
    TopKTrainingSAEConfig,
)
from safetensors.torch import save_file
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.peers.scripts.protocol import serve

torch.set_num_threads(int(os.environ["THREADS"]))
folder = Path(sys.argv[1])
source = str(folder / "model")
work = torch.load(folder / "work.pt", weights_only=True)
module = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained(source)
bridge = TransformerBridge.boot_transformers(source, hf_model=module, tokenizer=tokenizer, device="cpu")
layer, tokens = work["layer"], work["tokens"]
experts, width = work["gate_weight"].shape
gate = TopKSAE(
    TopKSAEConfig(d_in=width, d_sae=experts, k=work["k"], apply_b_dec_to_input=False, normalize_activations="none")
)
gate.W_enc.data.copy_(work["gate_weight"].T)
gate.b_enc.data.copy_(work["gate_bias"])


def steer(value: torch.Tensor, hook: Any) -> torch.Tensor:  # noqa: ARG001 - TransformerLens names the argument
    """Add the vector to the second row."""
    value[1] += work["vector"]
    return value


@torch.no_grad()
def pair() -> int:
    """Generate both rows with a hook on the MLP's output."""
    torch.manual_seed(0)
    ids = work["prompt"].repeat(2, 1)
    with bridge.hooks(fwd_hooks=[(f"blocks.{layer}.hook_mlp_out", steer)]):
        output = bridge.generate(
            ids, max_new_tokens=tokens, temperature=0.8, top_p=0.95, stop_at_eos=False, verbose=False
        )
    return int(output.shape[1] - ids.shape[1])


@torch.no_grad()
def routing() -> float:
    """Encode the text with the gate's weights. Returns the share of experts that the gate itself chooses."""
    name = f"blocks.{layer}.mlp.hook_in"
    _, cache = bridge.run_with_cache(work["text"], names_filter=[name], stop_at_layer=layer + 1)
    activations = gate.encode(cache[name][0])
    return float((activations.to_dense().gather(1, work["chosen"]) > 0).float().mean())


def autoencoder() -> str:
    """Train with the default settings, except sizes. Returns the file with the weights."""
    config = LanguageModelSAERunnerConfig(
        sae=TopKTrainingSAEConfig(d_in=width, d_sae=work["train_experts"], k=work["train_k"]),
        model_name=source,
        model_class_name="AutoModelForCausalLM",
        hook_name=f"model.layers.{layer}.mlp",
        context_size=work["train"].shape[1],
        training_tokens=work["train_tokens"],
        train_batch_size_tokens=work["batch_tokens"],
        store_batch_size_prompts=work["batch_tokens"] // work["train"].shape[1],
        prepend_bos=False,
        streaming=False,
        logger=LoggingConfig(log_to_wandb=False),
        output_path=None,
        checkpoint_path=None,
        verbose=False,
    )
    dataset = Dataset.from_dict({"input_ids": work["train"].tolist()}).with_format("torch")
    sae = LanguageModelSAETrainingRunner(config, override_dataset=dataset).run()
    with torch.no_grad():
        # Training scales scores by the norms of the decoder's rows.
        norms = sae.W_dec.norm(dim=1) if sae.cfg.rescale_acts_by_decoder_norm else torch.ones(sae.cfg.d_sae)
        bias = sae.b_enc - (sae.b_dec @ sae.W_enc if sae.cfg.apply_b_dec_to_input else 0)
        weights = {"W_enc": sae.W_enc.T * norms[:, None], "b_enc": bias * norms}
        weights |= {"W_dec": sae.W_dec / norms[:, None], "b_dec": sae.b_dec}
        save_file({name: value.contiguous() for name, value in weights.items()}, "sae-lens.safetensors")
    return str(folder / "sae-lens.safetensors")


names = ("sae-lens", "transformer-lens", "transformers")
serve({"pair": pair, "pair-texts": pair, "routing": routing, "autoencoder": autoencoder}, names)
