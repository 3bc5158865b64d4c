"""Write random transcoders with SAELens, with inputs and outputs beside each: FOLDER. Prints their names."""

import json
import sys
from pathlib import Path

import sae_lens
import torch
from safetensors.torch import save_file

EXPERTS, WIDTH = 40, 16
NAMES = {
    "transcoder": "Transcoder",
    "skip_transcoder": "SkipTranscoder",
    "jumprelu_transcoder": "JumpReLUTranscoder",
    "jumprelu_skip_transcoder": "JumpReLUSkipTranscoder",
}

torch.manual_seed(0)
for folder, name in NAMES.items():
    settings = getattr(sae_lens, f"{name}Config")(
        d_in=WIDTH, d_out=WIDTH, d_sae=EXPERTS, apply_b_dec_to_input=False, normalize_activations="none"
    )
    settings.metadata.hook_name, settings.metadata.hook_name_out = "blocks.1.mlp.hook_in", "blocks.1.hook_mlp_out"
    layer = getattr(sae_lens, name)(settings)
    x = torch.randn(200, WIDTH)
    with torch.no_grad():
        for key, value in layer.named_parameters():
            value.copy_((torch.rand_like(value) if key == "threshold" else torch.randn_like(value)) * 0.3)
        y = layer(x)
    target = Path(sys.argv[1]) / folder
    layer.save_model(target)
    save_file({"x": x, "y": y.contiguous()}, f"{target}.safetensors")
print(json.dumps({"version": sae_lens.__version__, "names": list(NAMES)}))
