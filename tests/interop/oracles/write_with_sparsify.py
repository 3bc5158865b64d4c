"""Write random transcoders with sparsify, with inputs and outputs beside each: FOLDER. Prints their names."""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors.torch import save_file
from sparsify import SparseCoder
from sparsify.config import SparseCoderConfig

EXPERTS, WIDTH, K = 40, 16, 4
NAMES = {"transcoder": False, "skip-transcoder": True}

torch.manual_seed(0)
for name, skip in NAMES.items():
    layer = SparseCoder(WIDTH, SparseCoderConfig(num_latents=EXPERTS, k=K, transcode=True, skip_connection=skip))
    x = torch.randn(200, WIDTH)
    with torch.no_grad():
        for value in layer.parameters():
            value.copy_(torch.randn_like(value) * 0.3)
        y = layer(x, x).sae_out
    target = Path(sys.argv[1]) / name
    layer.save_to_disk(target / "layers.1.mlp")
    save_file({"x": x, "y": y.contiguous()}, f"{target}.safetensors")
print(json.dumps({"version": version("eai-sparsify"), "names": list(NAMES)}))
