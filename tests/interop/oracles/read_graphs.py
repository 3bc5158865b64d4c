"""Parse graphs and feature files with circuit-tracer's models: FOLDER. Prints how many were read."""

import json
import sys
from pathlib import Path

from circuit_tracer.frontend.feature_models import Model as Feature
from circuit_tracer.frontend.graph_models import Model

folder = Path(sys.argv[1])
graphs = [path for path in folder.glob("*.json") if path.name != "graph-metadata.json"]
features = list(folder.glob("features/*.json"))
for path in graphs:
    Model.model_validate_json(path.read_text())
for path in features:
    Feature.model_validate_json(path.read_text())
print(json.dumps({"graphs": len(graphs), "features": len(features)}))
