"""A run that has come from elsewhere, as a folder or repository, becomes one of a data folder and its store."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Engine

from trainer.config import TrainConfig
from trainer.errors import UserError
from trainer.files import whole_folder
from trainer.registration import register_run
from trainer.run import RUN_FILE, Run, runs_folder


def adopt(run: Run, name: str, language_model: str | None, data: Path, store: Engine) -> Run:
    """Copy a run into a data folder, all at once, and enter it into the store.

    Args:
        run: wherever its files are; they are read and checked first.
        name: what it is called here.
        language_model: where its language model is, where that is not what its settings say.

    Raises:
        UserError: there is a run of this name, or its files are damaged.
    """
    folder = runs_folder(data) / name
    if (folder / RUN_FILE).exists():
        raise UserError(f"The run {name} exists; choose another --name.")
    run.layer.eval()  # read now, so that damaged weights are found before anything is written
    changes = {"name": name, "language_model": language_model or run.config.language_model}
    config = TrainConfig.model_validate(run.config.model_dump() | changes)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(folder) as partial:
        run.copy_to(partial, config)
    adopted = Run.load(folder, data)
    register_run(adopted, store)
    return adopted
