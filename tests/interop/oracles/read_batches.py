"""Read batches with SAEDashboard's classes and compare what they write: FOLDER. Prints how many features agree."""

import json
import sys
from importlib.metadata import version
from pathlib import Path

from sae_dashboard.neuronpedia.neuronpedia_dashboard import NeuronpediaDashboardBatch

features = 0
for path in Path(sys.argv[1]).glob("batch-*.json"):
    content = json.loads(path.read_text())
    assert NeuronpediaDashboardBatch(**content).to_dict() == content, path
    features += len(content["features"])
print(json.dumps({"version": version("sae-dashboard"), "features": features}))
