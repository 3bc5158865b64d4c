"""Load a transcoder with circuit-tracer, print the largest output difference: FILE TENSORS K. K is 0 without top-k."""

import json
import sys
from importlib.metadata import version

import torch
from circuit_tracer.transcoder.activation_functions import TopK
from circuit_tracer.transcoder.single_layer_transcoder import load_relu_transcoder
from safetensors.torch import load_file

file, tensors, k = sys.argv[1:]
stored = load_file(tensors)
layer = load_relu_transcoder(file, 0, torch.device("cpu"), lazy_encoder=False, lazy_decoder=False)
if int(k):
    layer.activation_function = torch.nn.Sequential(TopK(int(k)), torch.nn.ReLU())
with torch.no_grad():
    found = layer(stored["x"])
print(json.dumps({"version": version("circuit-tracer"), "difference": float((found - stored["y"]).abs().max())}))
