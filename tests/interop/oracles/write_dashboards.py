"""Write dashboards of a random SAE on a tiny random model with SAEDashboard: FOLDER. Prints the number of features."""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from sae_dashboard.components_config import (
    ActsHistogramConfig,
    Column,
    FeatureTablesConfig,
    LogitsHistogramConfig,
    LogitsTableConfig,
    SequencesConfig,
)
from sae_dashboard.layout import SaeVisLayoutConfig
from sae_dashboard.neuronpedia.neuronpedia_converter import NeuronpediaConverter
from sae_dashboard.neuronpedia.neuronpedia_runner_config import NeuronpediaRunnerConfig
from sae_dashboard.sae_vis_data import SaeVisConfig
from sae_dashboard.sae_vis_runner import SaeVisRunner
from sae_lens import HookedSAETransformer, StandardSAE, StandardSAEConfig
from transformer_lens import HookedTransformerConfig

FEATURES, WIDTH, VOCABULARY, PROMPTS, LENGTH = 32, 16, 200, 64, 24
HOOK = "blocks.1.hook_resid_post"

torch.manual_seed(0)
model = HookedSAETransformer(
    HookedTransformerConfig(
        n_layers=2, d_model=WIDTH, n_ctx=LENGTH, d_head=8, d_mlp=32, d_vocab=VOCABULARY, act_fn="gelu", seed=0
    )
)
sae = StandardSAE(StandardSAEConfig(d_in=WIDTH, d_sae=FEATURES))
sae.b_enc.data -= 1.0
columns = [
    SequencesConfig(
        stack_mode="stack-all",
        buffer=None,
        compute_buffer=True,
        n_quantiles=3,
        top_acts_group_size=6,
        quantile_group_size=3,
    ),
    ActsHistogramConfig(),
    LogitsHistogramConfig(),
    LogitsTableConfig(),
    FeatureTablesConfig(n_rows=3),
]
settings = SaeVisConfig(
    hook_point=HOOK,
    features=list(range(FEATURES)),
    minibatch_size_features=FEATURES,
    minibatch_size_tokens=16,
    device="cpu",
    dtype="float32",
    feature_centric_layout=SaeVisLayoutConfig(columns=[Column(*columns)]),
)
found = SaeVisRunner(settings).run(sae, model, torch.randint(VOCABULARY, (PROMPTS, LENGTH)))
runner = NeuronpediaRunnerConfig(
    sae_set="their-set",
    sae_path="",
    outputs_dir="",
    n_prompts_total=PROMPTS,
    n_tokens_in_prompt=LENGTH,
    huggingface_dataset_path="somebody/text",
    model_id="tiny",
    layer=1,
)
words = {number: f" word{number}" for number in range(VOCABULARY)}
content = NeuronpediaConverter.convert_to_np_json(model, found, runner, words)
folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
(folder / "batch-0.json").write_text(content)
features = json.loads(content)["features"]
examples = [max(example["values"]) > 0 for feature in features for example in feature["activations"]]
counts = {"features": len(features), "examples": len(examples), "active": sum(examples)}
print(json.dumps({"version": version("sae-dashboard")} | counts))
