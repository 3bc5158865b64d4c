"""The objective on the scales of a few experts, with its gradient and exact Hessian, and the step that follows.

Expert n of the chosen ones answers with (1 + w_n) c_n; w = 0 is the run as it is. Where one layer stands in, what
comes into it does not depend on w, so its routing is a constant, and the layer's answer is linear in w:

    y(w) = (a C + (a_B * w) C_B) * (z D) + b

What comes behind is not, and is differentiated twice by autograd, in float64 but for what the language model itself
does in float32, as the norms of Llama.

Shapes: T tokens, O output width, D chosen experts, K active.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from trainer.errors import UserError
from trainer.language_model import LanguageModel
from trainer.layers.mxd import MxD
from trainer.privacy.certificate import Certificate, Quadratic, certify, newton_step
from trainer.privacy.descent import Material
from trainer.privacy.objective import LOSSES
from trainer.privacy.passages import Encoded
from trainer.privacy.placed import Placed, next_token, whole
from trainer.progress import Progress, ShouldStop
from trainer.protect_config import NewtonConfig, ProtectConfig
from trainer.stand_ins import Mlp

PROBES = 3
"""Places at which the Hessian is looked at again, to estimate how fast it changes."""
TEXTS_AT_ONCE = 4


@dataclass(frozen=True)
class NewtonStep:
    """The scales, and what is known of them."""

    experts: tuple[int, ...]
    scales_D: Tensor
    """w, with its noise."""
    certificate: Certificate


class Stopped(UserError):
    """Somebody asked to stop."""

    def __init__(self) -> None:
        super().__init__("Protecting was stopped; nothing was written.")


def only_layer(placed: Placed) -> tuple[int, MxD]:
    """The layer that is placed, and where.

    Raises:
        UserError: there are several, or it writes several.
    """
    (index, layer), *others = placed.layers.items()
    if others:
        raise UserError("A Newton step is taken in one layer alone, behind which routings would change; name one run.")
    assert isinstance(layer, MxD)
    if layer.span > 1:
        raise UserError("A Newton step is taken in one layer alone; name a run that writes a single one.")
    return index, layer


class Block:
    """The chosen experts of one layer, with the language model around it, in float64 on the CPU."""

    def __init__(self, placed: Placed, experts: Sequence[int]) -> None:
        self._index, layer = only_layer(placed)
        self._layer: MxD = copy.deepcopy(layer).cpu().double().requires_grad_(False)
        module = copy.deepcopy(placed.language_model.module).cpu().double()
        self._language_model = LanguageModel(module, placed.language_model.tokenizer, placed.language_model.source)
        self._experts_D = torch.tensor(list(experts))

    def quadratic(
        self, at_D: Tensor, material: Material, config: ProtectConfig, newton: NewtonConfig, stop: Callable[[], None]
    ) -> Quadratic:
        """The objective at some scales. ``stop`` is called now and then, and may raise."""
        parts = list(self._parts(at_D, material, config, stop))
        value, gradient_D, hessian_DD = (torch.stack(list(each)).sum(0) for each in zip(*parts, strict=True))
        penalty = newton.damping / 2 * float(at_D @ at_D)
        return Quadratic(float(value) + penalty, gradient_D + newton.damping * at_D, hessian_DD)

    def _parts(
        self, at_D: Tensor, material: Material, config: ProtectConfig, stop: Callable[[], None]
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Value, gradient and Hessian of each part of both texts, weighted and divided so that they add up."""
        theta, unsure = config.theta, LOSSES[config.loss]
        count = max(1, config.batch // material.fit.shape[1])
        of_both = (
            (material.passages, theta, lambda logits_PV, _next_P: unsure(logits_PV)),
            (whole(material.fit[:count]), 1 - theta, next_token),
        )
        for texts, weight, loss in of_both:
            for place in range(0, len(texts), TEXTS_AT_ONCE):
                some = texts.some(slice(place, place + TEXTS_AT_ONCE))
                w_D = at_D.clone().requires_grad_()
                with torch.enable_grad(), sdpa_kernel([SDPBackend.MATH]):
                    found = weight * loss(*self._predictions(w_D, some)).sum() / texts.predictions
                    yield _derivatives(found, w_D, stop)

    def _predictions(self, w_D: Tensor, texts: Encoded) -> tuple[Tensor, Tensor]:
        with self._language_model.stand_in({self._index: lambda x, mlp: self._answer(w_D, x, mlp)}):
            logits_STV = self._language_model.module(input_ids=texts.ids_ST, use_cache=False).logits
        return logits_STV[texts.is_meant_ST], texts.ids_ST.roll(-1, 1)[texts.is_meant_ST]

    def _answer(self, w_D: Tensor, x_STI: Tensor, _mlp: Mlp) -> Tensor:
        with torch.no_grad():
            x_TI = x_STI.flatten(0, 1)
            routing, dense_TO = self._layer.route(x_TI), self._layer.dense_output(x_TI)
            mixing_TO = self._layer.mixing(routing)
            is_it_TKD = routing.indices_TK.unsqueeze(2) == self._experts_D
            a_TD = (routing.coefficients_TK.unsqueeze(2) * is_it_TKD).sum(1)
        changed_TO = mixing_TO + (a_TD * w_D) @ self._layer.scaling_NO[self._experts_D]
        return self._layer.decode_mixed(dense_TO, changed_TO).view(*x_STI.shape[:-1], -1)


def _derivatives(value: Tensor, w_D: Tensor, stop: Callable[[], None]) -> tuple[Tensor, Tensor, Tensor]:
    (gradient_D,) = torch.autograd.grad(value, w_D, create_graph=True)
    rows = []
    for one in gradient_D:
        stop()
        rows.append(torch.autograd.grad(one, w_D, retain_graph=True)[0])
    return value.detach(), gradient_D.detach(), torch.stack(rows)


@torch.no_grad()
def writing_most(placed: Placed, passages: Encoded, count: int) -> tuple[int, ...]:
    """Ids of the experts that add most to the layer's output where predictions of the passages count, most first."""
    index, layer = only_layer(placed)
    norms_N = torch.zeros(layer.config.num_experts)
    x_TI = placed.language_model.mlp_inputs([index], passages.ids_ST)[index].float()
    routing, dense_TM = layer.route(x_TI), layer.dense_output(x_TI)
    norms_TK = layer.contribution_norms(dense_TM, routing) * passages.is_meant_ST.flatten().to(x_TI.device).unsqueeze(1)
    norms_N.index_add_(0, routing.indices_TK.flatten().cpu(), norms_TK.flatten().float().cpu())
    wanted = min(count, int((norms_N > 0).sum()))
    return tuple(norms_N.topk(wanted).indices.tolist())


def take_newton_step(
    placed: Placed,
    material: Material,
    config: ProtectConfig,
    newton: NewtonConfig,
    progress: Progress,
    should_stop: ShouldStop,
) -> NewtonStep:
    """Scale the experts that write most on the passages by one damped Newton step, in the layer that is placed.

    Raises:
        Stopped: somebody asked for it; the layer is as it was.
        UserError: there are several layers.
    """
    experts = writing_most(placed, material.passages, newton.experts)
    block = Block(placed, experts)

    def stop() -> None:
        if should_stop():
            raise Stopped

    at_D = torch.zeros(len(experts), dtype=torch.float64)
    progress(0, PROBES + 1, "Hessians")
    found = block.quadratic(at_D, material, config, newton, stop)
    ends_D = newton_step(at_D, found, newton.damping)
    lipschitz = 0.0
    for done, direction_D in enumerate(_directions(len(experts), config.seed), start=1):
        progress(done, PROBES + 1, "Hessians")
        if newton.hessian_lipschitz is None:
            there = block.quadratic(direction_D, material, config, newton, stop)
            change = torch.linalg.matrix_norm(there.hessian_DD - found.hessian_DD, 2)
            lipschitz = max(lipschitz, float(change / torch.linalg.vector_norm(direction_D)))
    certificate = certify(at_D, ends_D, found, newton, lipschitz)
    scales_D = ends_D + certificate.sigma * _noise(len(experts))
    _scale(placed, experts, scales_D)
    progress(PROBES + 1, PROBES + 1, "Hessians")
    return NewtonStep(experts, scales_D, certificate)


def _directions(count: int, seed: int) -> Tensor:
    """Places around 0 to look at, [PROBES, D], each of length 1/2."""
    generator = torch.Generator().manual_seed(seed)
    found = torch.randn(PROBES, count, generator=generator, dtype=torch.float64)
    lengths: Tensor = torch.linalg.vector_norm(found, dim=1, keepdim=True)
    return found / (2 * lengths)


def _noise(count: int) -> Tensor:
    """Whoever knew the seed could take the noise away again, so nobody is told it."""
    generator = torch.Generator().manual_seed(secrets.randbits(63))
    return torch.randn(count, generator=generator, dtype=torch.float64)


def _scale(placed: Placed, experts: Sequence[int], scales_D: Tensor) -> None:
    _, layer = only_layer(placed)
    with torch.no_grad():
        layer.scaling_NO[list(experts)] *= (1 + scales_D).to(layer.scaling_NO).unsqueeze(1)
