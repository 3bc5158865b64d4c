"""A second implementation of the frozen graph: values recorded in one pass are reused in the next.

It uses neither leaves nor gradients, so it can check both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from mxd.trainer.analysis.circuits.graph import ExpertAtToken
from mxd.trainer.language_model.mlp_hooks import Mlp
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.prompts import prompt_ids
from mxd.trainer.layers.mxd import MxD
from mxd.trainer.storage.run import Run


class _Replay(TorchFunctionMode):
    """Records the attention patterns and norm scales of a pass, or replays those of an earlier one."""

    def __init__(self, kept: list[Any], given: Iterator[Any] | None) -> None:
        super().__init__()
        self._kept = kept
        self._given = given
        self.queries_and_keys: list[tuple[Tensor, Tensor]] = []

    def same(self, make: Callable[[], Any]) -> Any:
        if self._given is not None:
            return next(self._given)
        self._kept.append(make())
        return self._kept[-1]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.rsqrt, F.softmax):
            return self.same(lambda: func(*args, **kwargs))
        if func is F.scaled_dot_product_attention:
            self.queries_and_keys.append(args[:2])
            query, key = self.same(lambda: args[:2])
            return func(query, key, *args[2:], **kwargs)
        if func is torch.tanh:
            ratio = self.same(lambda: torch.where(args[0] == 0, 1.0, torch.tanh(args[0]) / args[0]))
            return args[0] * ratio
        if func is F.layer_norm:
            return self._layer_norm(*args, **kwargs)
        return func(*args, **kwargs)

    def _layer_norm(self, x: Tensor, _shape: Any, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        scale = self.same(lambda: (x.var(-1, unbiased=False, keepdim=True) + eps).rsqrt())
        normed: Tensor = (x - x.mean(-1, keepdim=True)) * scale * weight + bias
        return normed


class FrozenGraph:
    """The frozen graph of a text."""

    def __init__(self, language_model: LanguageModel, runs: Sequence[Run], text: str) -> None:
        self._language_model = language_model
        self._layers = {run.config.layer: run for run in runs}
        self._ids = torch.tensor([prompt_ids(language_model, text)])
        self._frozen: list[Any] = []
        self._seen: dict[int, dict[str, Tensor]] = {}
        self.inputs: dict[int, Tensor] = {}
        """Input of each MLP in the last pass, [T, I]."""
        self.queries_and_keys: list[tuple[Tensor, Tensor]] = []
        """Queries and keys that each layer computed in the last pass, although the first pass's pattern is used."""
        self.logits_V = self._forward({}, given=None)

    def without(self, *switches: ExpertAtToken) -> Tensor:
        """Return the last token's logits, [V], with some experts set to zero and the rest recomputed."""
        return self._forward({(it.run, it.position, it.expert): 0.0 for it in switches}, iter(self._frozen))

    def directly_without(self, switch: ExpertAtToken) -> Tensor:
        """Return the last token's logits, [V], with one expert set to zero and all others kept."""
        fixed = {
            (self._layers[number].name, position, expert): value
            for number, seen in self._seen.items()
            if number in self._layers
            for position, experts in enumerate(seen["indices"].tolist())
            for expert, value in zip(experts, seen["coefficients"][position].tolist(), strict=True)
        }
        return self._forward({**fixed, (switch.run, switch.position, switch.expert): 0.0}, iter(self._frozen))

    @torch.no_grad()
    def _forward(self, fixed: Mapping[tuple[str, int, int], float], given: Iterator[Any] | None) -> Tensor:
        blocks = range(len(self._language_model.architecture.blocks))
        replacements = {number: partial(self._answer, number, fixed) for number in blocks}
        with self._language_model.replace_mlps(replacements), _Replay(self._frozen, given) as replay:
            logits_TV: Tensor = self._language_model.module(input_ids=self._ids, use_cache=False).logits[0]
        self.queries_and_keys = replay.queries_and_keys
        return logits_TV[-1]

    def _answer(self, number: int, fixed: Mapping[tuple[str, int, int], float], x_1TI: Tensor, mlp: Mlp) -> Tensor:
        self.inputs[number] = x_1TI[0]
        if number not in self._seen:
            before = len(self._frozen)
            self._seen[number] = self._look(number, x_1TI, mlp)
            del self._frozen[before:]  # the inside of an MLP is not computed again
        seen = self._seen[number]
        if number not in self._layers:
            return seen["written"]
        run = self._layers[number]
        layer = run.layer
        assert isinstance(layer, MxD)
        output_TO = seen["rest"].clone()
        for position, experts in enumerate(seen["indices"].tolist()):
            for expert, was in zip(experts, seen["coefficients"][position].tolist(), strict=True):
                if was > 0:
                    live = float(layer.gate.weight[expert] @ x_1TI[0, position] + layer.gate.bias[expert])
                    value = fixed.get((run.name, position, expert), live)
                    output_TO[position] += value * (seen["hidden"][position] @ layer.expert_matrix(expert))
        return output_TO.unsqueeze(0)

    def _look(self, number: int, x_1TI: Tensor, mlp: Mlp) -> dict[str, Tensor]:
        if number not in self._layers:
            return {"written": mlp()}
        layer = self._layers[number].layer
        assert isinstance(layer, MxD)
        x_TI, written_TO = x_1TI[0], mlp()[0]
        output_TO, routing, _ = layer(x_TI)
        return {
            "hidden": layer.encode(x_TI),
            "indices": routing.indices_TK,
            "coefficients": routing.coefficients_TK,
            "rest": written_TO - output_TO + layer.output_bias,
        }
