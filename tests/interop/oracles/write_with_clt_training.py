"""Write a random layer with a branch of clt-training, with inputs and outputs beside it: FOLDER NAME SETTINGS, the
settings as JSON. The branch is the folder on PYTHONPATH. Prints the name.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from sparsify import SparseCoder
from sparsify.config import SparseCoderConfig

EXPERTS, WIDTH, K = 40, 16, 4
SHIFTS = "post_enc"

folder, name, settings = sys.argv[1:]
torch.manual_seed(0)
layer = SparseCoder(WIDTH, SparseCoderConfig(num_latents=EXPERTS, k=K, transcode=True, **json.loads(settings)))
x = torch.randn(200, WIDTH)
with torch.no_grad():
    for key, value in layer.named_parameters():
        if key != SHIFTS:
            value.copy_(torch.randn_like(value) * 0.3)
    y = layer(x, x).sae_out
target = Path(folder) / name
layer.save_to_disk(target / "layers.1.mlp")
save_file({"x": x, "y": y.contiguous()}, f"{target}.safetensors")
print(json.dumps({"name": name}))
