"""``mxd import-features``: features of other projects, for browsing."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from mxd.backend.cli.base import Command, Positional
from mxd.trainer.config import RunName


class ImportFeaturesCommand(Command):
    """Import a Neuronpedia export or SAEDashboard's batches as a run without weights.

    Its examples and labels can be browsed and searched. Routing and steering are not available.
    """

    examples: ClassVar = (
        "mxd import-features gemma-2-2b/20-gemmascope-res-16k --name gemmascope-l20",
        "mxd import-features dashboards --name dashboards --data /data/mxd",
        "mxd import-features dashboards --name dashboards --json",
    )

    folder: Positional[Path]
    """Folder with batch-N.json, or with the folders features, activations and explanations."""
    name: RunName
    """Name of the new run."""

    def run(self) -> int:
        """Import, and print a summary."""
        from mxd.backend.database.engine import opened
        from mxd.trainer.analysis.imported_features import read_features, save_features

        settings = self.settings()
        features = read_features(self.folder)
        with opened(settings.database_url) as database:
            run = save_features(features, self.name, self.folder, settings.data, database)
        result = {"run": run.name, "features": len(features.features), "labels": len(features.labels)}
        self.report(
            result, f"{run.name}: {len(features.features):,} features, {len(features.labels):,} labels. Next: mxd serve"
        )
        return 0
