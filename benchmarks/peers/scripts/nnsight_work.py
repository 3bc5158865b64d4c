"""nnsight: a baseline and a steered row of one ``generate``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from nnsight import TransformersModel

from benchmarks.peers.scripts.protocol import serve

torch.set_num_threads(int(os.environ["THREADS"]))
folder = Path(sys.argv[1])
work = torch.load(folder / "work.pt", weights_only=True)
model = TransformersModel(
    str(folder / "model"), task="text-generation", device_map="cpu", dtype=torch.float32, dispatch=True
)
layer, vector, tokens = int(work["layer"]), work["vector"], int(work["tokens"])


def pair() -> int:
    """Generate both rows; add the vector to the MLP's output of the second."""
    torch.manual_seed(0)
    ids = work["prompt"].repeat(2, 1)
    settings = {"do_sample": True, "temperature": 0.8, "top_p": 0.95, "min_new_tokens": tokens, "pad_token_id": 0}
    with model.generate({"input_ids": ids}, max_new_tokens=tokens, **settings) as tracer:
        for _ in tracer.iter[:tokens]:
            model.model.layers[layer].mlp.output[1] += vector
        output = tracer.result.save()
    return int(output.shape[1] - ids.shape[1])


serve({"pair": pair, "pair-texts": pair}, ("nnsight", "transformers"))
