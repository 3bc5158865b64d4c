"""Load folders with sparsify and print the largest relative output difference of each: FOLDER TENSORS …"""

import json
import sys
from importlib.metadata import version

import torch
from safetensors.torch import load_file
from sparsify import SparseCoder

differences = []
for folder, tensors in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
    stored = load_file(tensors)
    with torch.no_grad():
        found = SparseCoder.load_from_disk(folder)(stored["x"]).sae_out
    differences.append(float((found - stored["y"]).abs().max() / stored["y"].abs().max()))
print(json.dumps({"version": version("eai-sparsify"), "differences": differences}))
