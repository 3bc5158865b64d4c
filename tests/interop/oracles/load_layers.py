"""Load layers with a package and print the largest relative output difference of each: PACKAGE FOLDER TENSORS …"""

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file


def sae_lens(folder: str) -> Any:
    import sae_lens

    import mxd.trainer.storage.formats.saelens_layer  # noqa: F401 - registers the architecture

    return sae_lens.SAE.load_from_disk(folder)


def eai_sparsify(folder: str) -> Any:
    from sparsify import SparseCoder

    layer = SparseCoder.load_from_disk(folder)
    return lambda x: layer(x).sae_out


def circuit_tracer(folder: str) -> Any:
    import yaml
    from circuit_tracer.transcoder.activation_functions import TopK
    from circuit_tracer.transcoder.single_layer_transcoder import load_relu_transcoder

    settings = yaml.safe_load((Path(folder) / "config.yaml").read_text())
    (file,) = Path(folder).glob("layer_*.safetensors")
    layer = load_relu_transcoder(str(file), 0, torch.device("cpu"), lazy_encoder=False, lazy_decoder=False)
    if "k" in settings:  # which the loader ignores
        layer.activation_function = torch.nn.Sequential(TopK(settings["k"]), torch.nn.ReLU())
    return layer


package, *arguments = sys.argv[1:]
differences = []
for folder, tensors in zip(arguments[::2], arguments[1::2], strict=True):
    stored = load_file(tensors)
    with torch.no_grad():
        found = globals()[package.replace("-", "_")](folder)(stored["x"])
    differences.append(float((found - stored["y"]).abs().max() / stored["y"].abs().max()))
print(json.dumps({"version": version(package), "differences": differences}))
