"""``mxd lab``: experimental commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from mxd.backend.cli.base import FlagsOf
from mxd.backend.cli.commands.train import TRAIN_FLAGS, TrainCommand
from mxd.trainer.config import TrainConfig
from mxd.trainer.config.layer import methods
from mxd.trainer.experimental import ExperimentalTrainConfig

if TYPE_CHECKING:
    pass

CONCEPT_HEADER = ("", "AUROC", "95 %", "gain of score", "95 %", "loss increase", "over random expert", "95 %")
METHODS = methods("core", "experimental")


class LabTrainCommand(TrainCommand):
    """Train with experimental methods and penalties. Accepts all options of 'mxd train'.

    None of them improved on the core methods so far. The documentation, page "Beyond the paper", has the findings.
    """

    examples: ClassVar = (
        "mxd lab train openai-community/gpt2 --layer 8 --dataset corpus.jsonl --tokens 20M --method hidden-mxd",
        "mxd lab train openai-community/gpt2 --layer 8 --dataset corpus.jsonl --tokens 20M --method low-rank-mxd",
        "mxd lab train openai-community/gpt2 --layer 8 --dataset corpus.jsonl --tokens 20M --diversity-weight 0.01",
    )
    methods: ClassVar[tuple[str, ...]] = METHODS
    config_class: ClassVar[type[TrainConfig]] = ExperimentalTrainConfig
    program: ClassVar = "mxd lab train"

    flags: Annotated[
        dict[str, Any],
        FlagsOf(
            ExperimentalTrainConfig,
            without=TRAIN_FLAGS.without,
            positional=TRAIN_FLAGS.positional,
            several=TRAIN_FLAGS.several,
            optional=True,
            types={"method": Literal[METHODS]},
        ),
    ] = Field(default_factory=dict)

    @property
    def _trainer(self) -> Any:
        """The function that trains."""
        from mxd.trainer.experimental.diversity import train_experimental

        return train_experimental
