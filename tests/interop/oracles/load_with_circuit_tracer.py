"""Load transcoders with circuit-tracer and print the largest relative output difference of each: FOLDER TENSORS …"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import torch
import yaml
from circuit_tracer.transcoder.activation_functions import TopK
from circuit_tracer.transcoder.single_layer_transcoder import load_relu_transcoder
from safetensors.torch import load_file

differences = []
for folder, tensors in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
    stored = load_file(tensors)
    settings = yaml.safe_load((Path(folder) / "config.yaml").read_text())
    (file,) = Path(folder).glob("layer_*.safetensors")
    layer = load_relu_transcoder(str(file), 0, torch.device("cpu"), lazy_encoder=False, lazy_decoder=False)
    if "k" in settings:  # which the loader ignores
        layer.activation_function = torch.nn.Sequential(TopK(settings["k"]), torch.nn.ReLU())
    with torch.no_grad():
        found = layer(stored["x"])
    differences.append(float((found - stored["y"]).abs().max() / stored["y"].abs().max()))
print(json.dumps({"version": version("circuit-tracer"), "differences": differences}))
