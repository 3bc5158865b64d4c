"""Steering: the same prompt continued twice in one batch, as it is and with edits to the gate.

Four rows go through the language model together: each arm's text without and with the edits. So every token is
compared with what the other arm would have expected after the very same text, not after a text that has long since
gone its own way.

Shapes: V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import DynamicCache

from trainer.config import Sampling, SteeringConfig
from trainer.edits import EditedMlp, EditPlan
from trainer.language_model import LanguageModel
from trainer.routing import RoutedExpert, check_fits, prompt_ids, routed_experts, single_texts
from trainer.run import Run
from trainer.sampling import choose, gumbel_noise
from trainer.token_stream import TokenStream

Arm = Literal["default", "steered"]
Reason = Literal["length", "stop", "end-of-text"]
ARMS: tuple[Arm, Arm] = ("default", "steered")
EXPERTS_SHOWN = 8
ALTERNATIVES = 5

# Rows of the batch: which arm's text, and whether the edits are on.
TEXT_OF_ROW = (0, 1, 0, 1)
EDITED_ROWS = (False, True, True, False)
OTHER_ROW = {0: 2, 1: 3}
"""Row of an arm -> the row with the same text and the edits the other way round."""


class Alternative(NamedTuple):
    """A token that could have come next."""

    id: int
    text: str
    probability: float


@dataclass(frozen=True)
class Started:
    """The prompt has been read."""

    prompt_tokens: int
    max_tokens: int


@dataclass(frozen=True)
class NewToken:
    """One new token of one arm."""

    arm: Arm
    position: int
    """0 for the first."""
    id: int
    text: str
    """New characters; empty where a character continues in the next token."""
    probability: float
    """Under the arm that chose it, before temperature and the like."""
    delta_log_probability: float
    """log p with the edits − log p without, for this token after this very text, in nats."""
    kl: float
    """KL from this arm's next-token distribution to the other's, after this very text, in nats."""
    alternatives: tuple[Alternative, ...]
    other_alternatives: tuple[Alternative, ...]
    experts: tuple[RoutedExpert, ...]
    """Routing of the token before, which chose this one; edits not counted."""


@dataclass(frozen=True)
class Done:
    """Both arms have ended."""

    default_reason: Reason
    steered_reason: Reason
    tokens: int
    """New tokens of both arms."""
    seconds: float


SteeringStep = Started | NewToken | Done


@dataclass
class _ArmState:
    """The text of one arm as it grows."""

    ids: list[int]
    stream: TokenStream
    text: str = ""
    reason: Reason | None = None
    new: list[int] = field(default_factory=list)

    def push(self, token: int, sampling: Sampling, ends: frozenset[int]) -> str:
        self.ids.append(token)
        self.new.append(token)
        piece = self.stream.push(token)
        self.text += piece
        if token in ends:
            self.reason = "end-of-text"
        elif any(stop and stop in self.text for stop in sampling.stop):
            self.reason = "stop"
        elif len(self.new) >= sampling.max_tokens:
            self.reason = "length"
        return piece


def steer(
    language_model: LanguageModel, run: Run, config: SteeringConfig, units: Mapping[int, float] | None = None
) -> Iterator[SteeringStep]:
    """Continue a prompt without and with edits; yields ``Started``, then ``NewToken`` as they come, then ``Done``.

    Args:
        units: expert -> its 99th percentile, the unit of ``add`` and ``set``; 1 where it is not known.

    Raises:
        TooLongError: prompt and new tokens do not fit the language model.
        UserError: an edit names an unknown expert, or the run was fitted to another language model.
    """
    check_fits(language_model, run)
    plan = EditPlan.of(config.edits, units or {}, run.layer.config.num_experts)
    ids = prompt_ids(language_model, config.prompt, room=config.sampling.max_tokens)
    return _Generation(language_model, run, config, plan, ids).steps()


class _Generation:
    """One pair of continuations."""

    def __init__(
        self, language_model: LanguageModel, run: Run, config: SteeringConfig, plan: EditPlan, ids: list[int]
    ) -> None:
        self.language_model = language_model
        self.config = config
        self.layer_index = run.config.layer
        self.mlp = EditedMlp(run.layer.to(language_model.device), plan, config.apply)
        self.prompt = ids
        self.ends = _end_tokens(language_model)
        self.arms = [_ArmState(list(ids), TokenStream(language_model.tokenizer, ids)) for _ in ARMS]
        self.cache = DynamicCache(config=language_model.config)

    def steps(self) -> Iterator[SteeringStep]:
        sampling, started = self.config.sampling, time.monotonic()
        yield Started(len(self.prompt), sampling.max_tokens)
        logits_RV = self._read_prompt()
        for position in range(sampling.max_tokens):
            yield from self._choose(position, logits_RV)
            if all(arm.reason for arm in self.arms):
                break
            # An arm that has ended rides along on its last token; its row is no longer read.
            newest = torch.tensor([[self.arms[text].ids[-1]] for text in TEXT_OF_ROW])
            logits_RV = self._forward(newest, EDITED_ROWS, generated=True)
        default, steered = (arm.reason or "length" for arm in self.arms)
        yield Done(default, steered, sum(len(arm.new) for arm in self.arms), time.monotonic() - started)

    def _read_prompt(self) -> Tensor:
        """Read the prompt twice, without and with edits, and let four rows go on from it."""
        logits_2V = self._forward(torch.tensor([self.prompt, self.prompt]), (False, True), generated=False)
        rows = torch.tensor([int(edited) for edited in EDITED_ROWS], device=logits_2V.device)
        self.cache.batch_select_indices(rows)
        assert self.mlp.last_x_BI is not None and self.mlp.last_routing is not None
        self.mlp.last_x_BI = self.mlp.last_x_BI[rows]
        self.mlp.last_routing = type(self.mlp.last_routing)(*(values[rows] for values in self.mlp.last_routing))
        return logits_2V[rows]

    @torch.no_grad()
    def _forward(self, ids_RT: Tensor, edited: tuple[bool, ...], *, generated: bool) -> Tensor:
        """Next-token log-probabilities after the last token of each row, [R, V]."""
        on = self.config.scope in ("all", "generated" if generated else "prompt")
        self.mlp.touched_BT = (torch.tensor(edited) & on).unsqueeze(1).expand(ids_RT.shape)
        with self.language_model.stand_in({self.layer_index: self.mlp}):
            output: Any = self.language_model.module(
                input_ids=ids_RT.to(self.language_model.device),
                past_key_values=self.cache,
                use_cache=True,
                logits_to_keep=1,
            )
        logits_RV: Tensor = output.logits[:, -1].float()
        return logits_RV.log_softmax(dim=-1)

    def _choose(self, position: int, log_p_RV: Tensor) -> Iterator[NewToken]:
        """Let each arm that goes on take its next token."""
        noise_V = gumbel_noise(self.config.sampling.seed, position, log_p_RV.shape[1])
        assert self.mlp.last_x_BI is not None and self.mlp.last_routing is not None
        experts = routed_experts(self.mlp.layer, self.mlp.last_x_BI, self.mlp.last_routing)
        for row, arm in enumerate(ARMS):
            state = self.arms[row]
            if state.reason:
                continue
            own_V, other_V = log_p_RV[row], log_p_RV[OTHER_ROW[row]]
            token = choose(own_V, set(state.ids), self.config.sampling, noise_V)
            sign = 1 if arm == "steered" else -1
            yield NewToken(
                arm=arm,
                position=position,
                id=token,
                text=state.push(token, self.config.sampling, self.ends),
                probability=own_V[token].exp().item(),
                delta_log_probability=sign * (own_V[token] - other_V[token]).item(),
                kl=F.kl_div(other_V, own_V, log_target=True, reduction="sum").clamp_min(0).item(),
                alternatives=self._alternatives(own_V),
                other_alternatives=self._alternatives(other_V),
                experts=experts[row][:EXPERTS_SHOWN],
            )

    def _alternatives(self, log_p_V: Tensor) -> tuple[Alternative, ...]:
        top = log_p_V.topk(ALTERNATIVES)
        ids: list[int] = top.indices.tolist()
        texts = single_texts(self.language_model, set(ids))
        return tuple(Alternative(i, texts[i], p) for i, p in zip(ids, top.values.exp().tolist(), strict=True))


def _end_tokens(language_model: LanguageModel) -> frozenset[int]:
    """Ids after which a text is over."""
    generation = getattr(language_model.module, "generation_config", None)
    found = getattr(generation, "eos_token_id", None)
    ids = found if isinstance(found, list) else [found, language_model.tokenizer.eos_token_id]
    return frozenset(int(token) for token in ids if isinstance(token, int))
