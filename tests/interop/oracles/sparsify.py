"""Load a folder with sparsify and print the largest output difference on stored inputs: FOLDER TENSORS."""

import json
import sys
from importlib.metadata import version

import torch
from safetensors.torch import load_file
from sparsify import SparseCoder

folder, tensors = sys.argv[1:]
stored = load_file(tensors)
with torch.no_grad():
    found = SparseCoder.load_from_disk(folder)(stored["x"]).sae_out
print(json.dumps({"version": version("eai-sparsify"), "difference": float((found - stored["y"]).abs().max())}))
