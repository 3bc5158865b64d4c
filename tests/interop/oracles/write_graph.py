"""Write a graph with circuit-tracer, of random direct effects: FOLDER TOKENIZER. Prints how many nodes it has."""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from circuit_tracer.attribution.targets import LogitTarget
from circuit_tracer.graph import Graph
from circuit_tracer.utils.create_graph_files import create_graph_files
from circuit_tracer.utils.tl_nnsight_mapping import UnifiedConfig
from transformers import AutoTokenizer

LAYERS, FEATURES, EXPERTS = 3, 24, 40

folder, source = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(source)
ids = torch.tensor(tokenizer("Once upon a time")["input_ids"])
places = len(ids)
generator = torch.Generator().manual_seed(0)
features = torch.stack([torch.randint(size, (FEATURES,), generator=generator) for size in (LAYERS, places, EXPERTS)], 1)
features = features[features[:, 0].argsort()]
nodes = FEATURES + LAYERS * places + places + 1
# Rows receive: features from earlier features, errors and tokens, the logit from everything.
effects = torch.randn(nodes, nodes, generator=generator)
effects[:FEATURES, :FEATURES] *= features[:, None, 0] > features[None, :, 0]
effects[FEATURES:-1] = 0
effects[:, -1] = 0
config = UnifiedConfig(
    n_layers=LAYERS,
    d_model=16,
    d_head=8,
    n_heads=2,
    d_mlp=24,
    d_vocab=len(tokenizer),
    tokenizer_name=source,
    model_name="tiny",
    original_architecture="LlamaForCausalLM",
)
graph = Graph(
    input_string="Once upon a time",
    input_tokens=ids,
    active_features=features,
    adjacency_matrix=effects,
    cfg=config,
    selected_features=torch.arange(FEATURES),
    activation_values=torch.rand(FEATURES, generator=generator),
    logit_targets=[LogitTarget(",", int(tokenizer(",")["input_ids"][-1]))],
    logit_probabilities=torch.tensor([0.4]),
    scan="tiny",
)
create_graph_files(graph, "once", folder)
content = json.loads((Path(folder) / "once.json").read_text())
counts = {"nodes": len(content["nodes"]), "links": len(content["links"])}
print(json.dumps({"version": version("circuit-tracer")} | counts))
