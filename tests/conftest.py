"""What holds for every test: one thread, so that parallel runs do not fight for cores, and no hub."""

from __future__ import annotations

import os

import torch

# Read when huggingface_hub is first imported, hence here and not in a fixture.
os.environ["HF_HUB_OFFLINE"] = "1"
torch.set_num_threads(1)
