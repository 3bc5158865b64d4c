"""Write random transcoder sets with circuit-tracer, with inputs and outputs of layer 1: FOLDER. Prints their names."""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from circuit_tracer.transcoder.activation_functions import JumpReLU
from circuit_tracer.transcoder.single_layer_transcoder import SingleLayerTranscoder, TranscoderSet
from safetensors.torch import save_file

EXPERTS, WIDTH = 40, 16
NAMES = {"relu": (False, False), "jumprelu": (True, False), "jumprelu-skip": (True, True)}
# The package writes no config: its loader reads one that people write.
CONFIG = 'model_name: "tiny"\nmodel_kind: "transcoder_set"\nfeature_input_hook: "mlp.hook_in"\n'

torch.manual_seed(0)
for name, (jump, skip) in NAMES.items():
    layers = {}
    for number in range(3):
        activation = JumpReLU(torch.zeros(EXPERTS)) if jump else torch.nn.functional.relu
        layers[number] = SingleLayerTranscoder(WIDTH, EXPERTS, activation, number, skip, dtype=torch.float32)
        with torch.no_grad():
            for key, value in layers[number].named_parameters():
                value.copy_((torch.rand_like(value) if "threshold" in key else torch.randn_like(value)) * 0.3)
    target = Path(sys.argv[1]) / name
    TranscoderSet(layers, "mlp.hook_in", "hook_mlp_out").to_safetensors(str(target))
    (target / "config.yaml").write_text(CONFIG + 'feature_output_hook: "hook_mlp_out"\n')
    x = torch.randn(200, WIDTH)
    with torch.no_grad():
        save_file({"x": x, "y": layers[1](x).contiguous()}, f"{target}.safetensors")
print(json.dumps({"version": version("circuit-tracer"), "names": list(NAMES)}))
