"""``python -m benchmarks peers``: the same work with other packages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from benchmarks.commands.bench_live import DEMO_RUN, Positive, sample_run
from benchmarks.peers.environments import ENVIRONMENTS
from benchmarks.peers.scripts.protocol import Work
from mxd.backend.cli.base import Command, Several
from mxd.backend.cli.console import task
from mxd.trainer.config.base import SAMPLE, Count
from mxd.trainer.errors import UserError

if TYPE_CHECKING:
    from benchmarks.peers.compare import PeerPoint

PeerName = Literal["transformers", "nnsight", "sae-lens", "sparsify", "delphi", "paper"]
QUALITY: Mapping[str, str] = {
    "routing": "of the gate's experts",
    "index": "active experts per token",
    "autoencoder": "held-out NMSE",
    "transcoder": "held-out NMSE",
    "mxd": "held-out NMSE",
}


class BenchPeers(Command):
    """Time steering, routing, indexing and training against other packages, interleaved, on the demo's language model.

    The pinned packages are installed into environments of their own on first use, which needs a network. Each trains
    with its own default settings, except sizes, on equally many tokens.
    """

    examples: ClassVar = (
        "python -m benchmarks peers --json",
        "python -m benchmarks peers --works pair,routing --peers transformers --rounds 1",
    )

    works: Several[Work] = (
        "pair",
        "pair-texts",
        "pairs",
        "pairs-texts",
        "routing",
        "index",
        "autoencoder",
        "transcoder",
    )
    """Work to compare. Comma-separated."""
    peers: Several[PeerName] = ("transformers", "nnsight", "sae-lens", "sparsify", "delphi")
    """Packages to compare with. Comma-separated."""
    demo_run: str = DEMO_RUN
    """Run of the demo that steers, routes and is indexed; training uses its layer."""
    tokens: Annotated[int, Field(gt=0, le=256)] = 64
    """Tokens that each variant of a steering pair generates."""
    train_tokens: Count = 102_400
    """Tokens to train on, and to index."""
    batch_tokens: Annotated[int, Field(ge=128, multiple_of=128)] = 2048
    """Training tokens per step, a multiple of the context length of 128."""
    num_experts: Count = 4096
    """Number of experts N of the trained layers."""
    k: Positive = 32
    """Number of active experts K of the trained layers."""
    rounds: Positive = 5
    """Number of interleaved rounds; medians are reported."""
    threads: Positive = 2
    """Threads of each participant."""
    paper_code: Path | None = None
    """Folder of a copy of the paper's code, which the peer ``paper`` needs."""
    environments: Path = ENVIRONMENTS
    """Folder of the peers' environments."""

    def run(self) -> int:
        """Measure and report."""
        import torch

        from benchmarks.peers.compare import bench_peers
        from benchmarks.peers.inputs import WorkSizes
        from benchmarks.peers.participants import PAPER
        from mxd.trainer.language_model.model import LanguageModel

        if PAPER in self.peers and self.paper_code is None:
            raise UserError("The peer 'paper' needs --paper-code: the folder of a copy of its repository.")
        run = sample_run(self.demo_run)
        language_model = LanguageModel.load(run.language_model_source, "cpu", torch.float32)
        with task("Comparing", "rounds") as callbacks:
            found = bench_peers(
                run,
                language_model,
                SAMPLE / "text.jsonl.gz",
                works=self.works,
                peers=self.peers,
                sizes=WorkSizes(self.tokens, self.train_tokens, self.batch_tokens, self.num_experts, self.k),
                rounds=self.rounds,
                threads=self.threads,
                environments=self.environments.resolve(),
                paper_code=self.paper_code and self.paper_code.resolve(),
                callbacks=callbacks,
            )
        self.report(asdict(found), "\n".join(map(_line, found.points)))
        return 0


def _line(point: PeerPoint) -> str:
    quality = f", {point.quality:.3f} {QUALITY[point.work]}" if point.work in QUALITY else ""
    return (
        f"{point.work:<12} {point.participant:<13} {point.wall_seconds:8.2f} s, CPU {point.cpu_seconds:8.2f} s; "
        f"ours is {point.wall_speedup:.2f} times as fast, {point.cpu_speedup:.2f} in CPU time{quality}"
    )
