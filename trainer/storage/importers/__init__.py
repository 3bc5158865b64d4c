"""Import of layers trained with other libraries. Nothing in their files is executed."""

from mxd.trainer.config.analysis import ImportConfig
from mxd.trainer.storage.importers.import_run import ImportResult, import_run

__all__ = ["ImportConfig", "ImportResult", "import_run"]
