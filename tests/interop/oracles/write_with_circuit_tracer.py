"""Write random transcoder sets with circuit-tracer, with inputs and outputs of layer 1: FOLDER. Prints their names."""

from pathlib import Path

import torch
from circuit_tracer.transcoder.activation_functions import JumpReLU
from circuit_tracer.transcoder.single_layer_transcoder import SingleLayerTranscoder, TranscoderSet

from tests.interop.oracles.written import EXPERTS, WIDTH, randomize, report, write

NAMES = {"relu": (False, False), "jumprelu": (True, False), "jumprelu-skip": (True, True)}
# The package writes no config: its loader reads one that people write.
CONFIG = 'model_name: "tiny"\nmodel_kind: "transcoder_set"\nfeature_input_hook: "mlp.hook_in"\n'


def save(target: Path) -> None:
    TranscoderSet(layers, "mlp.hook_in", "hook_mlp_out").to_safetensors(str(target))
    (target / "config.yaml").write_text(CONFIG + 'feature_output_hook: "hook_mlp_out"\n')


torch.manual_seed(0)
for name, (jump, skip) in NAMES.items():
    layers = {}
    for number in range(3):
        activation = JumpReLU(torch.zeros(EXPERTS)) if jump else torch.nn.functional.relu
        layers[number] = SingleLayerTranscoder(WIDTH, EXPERTS, activation, number, skip, dtype=torch.float32)
        randomize(layers[number])
    write(name, save, layers[1])
report("circuit-tracer", NAMES)
