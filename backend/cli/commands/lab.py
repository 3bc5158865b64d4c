"""``mxd lab``: experimental commands."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_args

from pydantic import Field

from mxd.backend.cli.base import FlagsOf, ModelCommand, Positional
from mxd.backend.cli.commands.train import TRAIN_FLAGS, TrainCommand
from mxd.backend.cli.console import columns, task
from mxd.trainer.config import TrainConfig
from mxd.trainer.config.methods import ExperimentalMethod, TrainableMethod
from mxd.trainer.experimental import ExperimentalTrainConfig
from mxd.trainer.experimental.concepts.config import ConceptSteeringConfig

if TYPE_CHECKING:
    from mxd.trainer.experimental.concepts.results import ConceptSteering
    from mxd.trainer.utils.bootstrap import Interval

CONCEPT_HEADER = ("", "AUROC", "95 %", "gain of score", "95 %", "loss increase", "over random expert", "95 %")


class LabTrainCommand(TrainCommand):
    """Train with experimental methods and penalties. Accepts all options of 'mxd train'.

    None of them improved on the core methods so far. The documentation, page "Beyond the paper", has the findings.
    """

    examples: ClassVar = (
        "mxd lab train openai-community/gpt2 --layer 8 --dataset corpus.jsonl --tokens 20M --method peer",
        "mxd lab train openai-community/gpt2 --layer 8 --dataset corpus.jsonl --tokens 20M --method low-rank-mxd",
        "mxd lab train openai-community/gpt2 --layer 8 --dataset corpus.jsonl --tokens 20M --revive-after 1M",
    )
    methods: ClassVar = (*get_args(TrainableMethod), *get_args(ExperimentalMethod))
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
            types={"method": TrainableMethod | ExperimentalMethod},
        ),
    ] = Field(default_factory=dict)

    @property
    def _trainer(self) -> Any:
        """The function that trains."""
        from mxd.trainer.experimental.train import train_experimental

        return train_experimental


class LabSteerConceptsCommand(ModelCommand):
    """Steer towards the concepts of labelled texts, scored without a judge.

    For each concept, the expert that detects it best is chosen. A word classifier scores the steered texts, and the
    original model gives their perplexity. Baselines are a random expert, a random direction, the difference of means
    and a transcoder feature.
    """

    examples: ClassVar = (
        "mxd lab steer-concepts gpt2-l8 --texts kinds.jsonl --label-column kind",
        "mxd lab steer-concepts gpt2-l8 --transcoder gpt2-l8-transcoder --texts kinds.jsonl --concepts 5 --json",
        "mxd lab steer-concepts gpt2-l8 --texts train_data.parquet --text-column output --label-column output_concept "
        "--negative EEEEE",
    )

    name: Positional[str]
    """Name or folder of the run."""
    transcoder: str | None = None
    """Name or folder of a transcoder of the same layer."""
    config: ConceptSteeringConfig

    def run(self) -> int:
        """Measure, and print one row per method."""
        from mxd.trainer.experimental.concepts.benchmark import steer_concepts
        from mxd.trainer.language_model.model import LanguageModel
        from mxd.trainer.storage.run import Run

        data = self.settings().data
        run = Run.load(self.name, data)
        transcoder = None if self.transcoder is None else Run.load(self.transcoder, data)
        language_model = LanguageModel.load(run.language_model_source, self.device)
        with task(f"Steering with {run.name}", "texts") as callbacks:
            result = steer_concepts(run, transcoder, self.config, language_model, callbacks)
        self.report(asdict(result), _concept_table(result))
        return 0


def _concept_table(result: ConceptSteering) -> str:
    rows = []
    for each in result.methods:
        auroc = result.mean_auroc.get(each.method)
        rows.append(
            (
                each.method,
                "–" if auroc is None else f"{auroc.value:.2f}",
                "–" if auroc is None else _ends(auroc),
                f"{each.gain.value:+.3f}",
                _ends(each.gain),
                f"{each.loss_increase.value:+.2f}",
                f"{each.over_random_expert.value:+.3f}",
                _ends(each.over_random_expert),
            )
        )
    classifier = result.mean_auroc["classifier"]
    head = (
        f"{result.run}, layer {result.layer}: {len(result.detection)} concepts. Classifier of words: AUROC "
        f"{classifier.value:.2f} ({_ends(classifier)}), score without steering {result.score_without_steering:.3f}."
    )
    return "\n".join([head, *columns(CONCEPT_HEADER, rows)])


def _ends(interval: Interval) -> str:
    return f"{interval.low:.2f} to {interval.high:.2f}"
