"""Load folders with SAELens and print the largest relative output difference of each: FOLDER TENSORS …"""

import json
import sys

import sae_lens
import torch
from safetensors.torch import load_file

import mxd.trainer.storage.formats.saelens_layer  # noqa: F401 - registers the architecture

differences = []
for folder, tensors in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
    stored = load_file(tensors)
    with torch.no_grad():
        found = sae_lens.SAE.load_from_disk(folder)(stored["x"])
    differences.append(float((found - stored["y"]).abs().max() / stored["y"].abs().max()))
print(json.dumps({"version": sae_lens.__version__, "differences": differences}))
