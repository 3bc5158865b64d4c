"""Write random transcoders with SAELens: FOLDER. Prints their names."""

import sae_lens
import torch

from tests.interop.oracles.written import EXPERTS, WIDTH, randomize, report, write

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
    randomize(layer)
    write(folder, layer.save_model, layer)
report("sae-lens", NAMES)
