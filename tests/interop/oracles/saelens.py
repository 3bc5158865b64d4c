"""Load a folder with SAELens and print the largest output difference on stored inputs: FOLDER TENSORS."""

import json
import sys

import sae_lens
import torch
from safetensors.torch import load_file

import mxd.trainer.storage.exporters.saelens_layer  # noqa: F401 - registers the architecture

folder, tensors = sys.argv[1:]
stored = load_file(tensors)
with torch.no_grad():
    found = sae_lens.SAE.load_from_disk(folder)(stored["x"])
print(json.dumps({"version": sae_lens.__version__, "difference": float((found - stored["y"]).abs().max())}))
