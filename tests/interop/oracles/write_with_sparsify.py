"""Write random layers with sparsify, or with a branch of clt-training on PYTHONPATH: FOLDER [NAME SETTINGS].

Without a name, two transcoders are written. Prints the names.
"""

import json
import sys
from typing import Any

import torch
from sparsify import SparseCoder
from sparsify.config import SparseCoderConfig

from tests.interop.oracles.written import EXPERTS, WIDTH, randomize, report, write


def write_coder(name: str, **settings: Any) -> None:
    layer = SparseCoder(WIDTH, SparseCoderConfig(num_latents=EXPERTS, k=4, transcode=True, **settings))
    randomize(layer, without="post_enc")  # shifts
    write(name, lambda target: layer.save_to_disk(target / "layers.1.mlp"), lambda x: layer(x, x).sae_out)


torch.manual_seed(0)
layers = {"transcoder": {}, "skip-transcoder": {"skip_connection": True}}
if len(sys.argv) > 2:
    layers = {sys.argv[2]: json.loads(sys.argv[3])}
for name, settings in layers.items():
    write_coder(name, **settings)
report("eai-sparsify", layers)
