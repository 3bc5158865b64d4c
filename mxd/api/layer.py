"""A trained layer as a PyTorch module, with everything that a script or notebook does with it.

Shapes: B rows, T tokens, I input width, H hidden width, O output width, N experts, K active experts. ``...`` stands for
any leading dimensions, such as [B, T].
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn

from mxd.api.attachment import Attachment, attach, batch_activations, like_weights, splice
from mxd.api.edits import Edits
from mxd.api.models import Reference
from mxd.trainer.config import LayerConfig, SteeringMode
from mxd.trainer.errors import UserError
from mxd.trainer.layers.base import Routing, SparseLayer
from mxd.trainer.layers.mxd import MxD as MxDCore
from mxd.trainer.layers.transcoders import Transcoder as TranscoderCore
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.suggestions import unknown_expert

if TYPE_CHECKING:
    from mxd.api.results import Examples
    from mxd.trainer.analysis.expert import Expert


class Layer(nn.Module):
    """A trained layer of N experts, K of them active per token, in place of the MLP of one block.

    ``layer(x)`` maps the MLP's input to its output. Weights are in float32 on the CPU until ``layer.to`` moves them.

    >>> layer = mxd.Layer.from_pretrained("my-run")
    >>> batch = tokenizer(["One day", "The end."], return_tensors="pt", padding=True)
    >>> layer.activations(model, batch).shape
    torch.Size([2, 8, 40])
    >>> with layer.steer(model, {7: +6, 3: "ablate"}):
    ...     ids = model.generate(**batch, max_new_tokens=4)
    >>> with layer.steer(model, ["7:add:6@when:3>0", "3:ablate@first:2"]):  # conditions, as on the command line
    ...     ids = model.generate(**batch, max_new_tokens=4)
    >>> attached = layer.attach(model)
    >>> any(".mxd." in name for name, _ in model.named_parameters())
    True
    >>> attached.detach()
    >>> with layer.replace(model):
    ...     logits = model(**batch).logits
    >>> layer.examples(7).to_pandas().columns[0]
    'activation'
    """

    core_class: ClassVar[type[nn.Module]] = SparseLayer

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.core = run.layer
        self.reference = Reference()
        if not isinstance(self.core, self.core_class):
            raise UserError(
                f"'{run.name}' is a {run.config.method}, not a {type(self).__name__}. Load it with mxd.load."
            )

    @classmethod
    def from_pretrained(
        cls, source: str | Path, *, revision: str | None = None, data: str | Path | None = None
    ) -> Self:
        """Load a trained layer.

        Args:
            source: name of a run in the data folder or the demo, folder of a run, or Hugging Face Hub repo OWNER/NAME.
            revision: branch, tag or commit of a Hub repo.
            data: data folder. Default: ``MXD_DATA``, or ``data``.

        Raises:
            NotFoundError: there is no such run.
            UserError: it is a layer of another kind, damaged, or cannot be downloaded.
        """
        from mxd.api.loading import find_run

        return cls(find_run(source, revision, data))

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write the layer with its settings and tokenizer to a new folder, for ``from_pretrained``.

        Raises:
            UserError: the folder is not empty.
        """
        return self.run.save_pretrained(folder)

    # ------------------------------------------------------------ facts

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.run.name

    @property
    def layer(self) -> int:
        """Index of the block whose MLP the layer replaces."""
        return self.run.config.layer

    @property
    def config(self) -> LayerConfig:
        """Sizes N, K, I, H and O, method and activation."""
        return self.core.config

    def extra_repr(self) -> str:
        config = self.config
        return f"name={self.name!r}, layer={self.layer}, num_experts={config.num_experts}, k={config.k}"

    def at_k(self, k: int) -> Self:
        """This layer with only the k strongest experts of each token. It shares the weights.

        Raises:
            UserError: k exceeds K, or the method has no top-k.
        """
        narrow = type(self)(self.run)
        narrow.core, narrow.reference = self.core.at_k(k), self.reference
        return narrow

    # ------------------------------------------------------------ equations

    def forward(self, x: Tensor) -> Tensor:
        """Output [..., O] for an MLP input [..., I], of the same dtype and on the same device."""
        output_TO: Tensor = self.core(self._rows(x)).output_TO
        return output_TO.to(x).reshape(*x.shape[:-1], -1)

    def encode(self, x: Tensor) -> Tensor:
        """Gate activations [..., N] of an MLP input [..., I]: at most K per token are not zero. Differentiable."""
        coefficients_TK, indices_TK = self.core.route(self._rows(x))
        dense_TN = coefficients_TK.new_zeros(len(coefficients_TK), self.config.num_experts)
        return dense_TN.scatter_add(1, indices_TK, coefficients_TK).reshape(*x.shape[:-1], -1)

    def decode(self, x: Tensor, activations: Tensor) -> Tensor:
        """Output [..., O] for an MLP input [..., I] and gate activations [..., N], dense or sparse, edited or not."""
        routing = _routing(activations.to_dense().reshape(-1, self.config.num_experts))
        output_TO = self.core.decode(self.core.dense_output(self._rows(x)), routing)
        return output_TO.to(x).reshape(*x.shape[:-1], -1)

    def _rows(self, x: Tensor) -> Tensor:
        return like_weights(x.reshape(-1, x.shape[-1]), self.core)

    def _check_expert(self, expert: int) -> int:
        if not 0 <= expert < self.config.num_experts:
            raise UserError(unknown_expert(expert, self.name, self.config.num_experts))
        return expert

    # ------------------------------------------------------------ inside a model

    def activations(self, model: Any, batch: Mapping[str, Tensor] | Tensor, *, requires_grad: bool = False) -> Tensor:
        """Gate activations of a batch as a sparse tensor [B, T, N]. Padding has none.

        Args:
            model: the Hugging Face model that the layer was trained on. It is computed up to the layer.
            batch: result of ``tokenizer(texts, return_tensors="pt", padding=True)``, or token ids [B, T].
            requires_grad: record gradients to the model, to ``inputs_embeds`` in the batch and to the layer.

        Raises:
            UserError: the layer does not fit the model, or the batch has no token ids.
        """
        with torch.set_grad_enabled(requires_grad):
            return batch_activations(self, model, batch)

    def steer(self, model: Any, edits: Edits, *, mode: SteeringMode = "residual") -> Attachment:
        """Change gate activations in every forward pass of ``model`` until the returned handle is detached.

        Use it as ``with layer.steer(model, {7: +6, 40: "ablate"}):`` around any loop, such as ``model.generate``.
        Handles of several layers can be nested.

        Args:
            model: the Hugging Face model that the layer was trained on.
            edits: expert -> change: a number to add, in units of the expert's 99th-percentile activation, ``"ablate"``,
                ``("scale", factor)`` or ``("set", strength)``. The unit is 1 before the run is indexed. Or a list of
                edits as on the command line, such as ``"7:add:6@when:40>0"`` or ``"40:ablate@first:20"``. Several
                tokens in one pass are a prompt; tokens that are passed one at a time are generated.
            mode: ``residual`` adds the difference that the edits make to the MLP's output. ``replace`` also replaces
                the MLP by the layer.

        Raises:
            UserError: there is no such expert, an edit has an unknown form or names another run, or the layer does not
                fit the model.
        """
        return splice(self, model, edits, mode)

    def replace(self, model: Any) -> Attachment:
        """Replace the MLP of ``model`` by the layer until the returned handle is detached. Use it with ``with``.

        Raises:
            UserError: the layer does not fit the model.
        """
        return splice(self, model, {}, "replace")

    def attach(self, model: Any, edits: Edits | None = None, *, mode: SteeringMode = "replace") -> Attachment:
        """As ``steer``, and make this module a submodule ``mxd`` of its block.

        Its parameters are then among ``model.parameters()``: they move, train and are saved with the model.

        Raises:
            UserError: as ``steer``, or another layer is attached there.
        """
        return attach(self, model, edits or {}, mode)

    # ------------------------------------------------------------ results of indexing

    def expert(self, expert: int, *, examples: int = 8, database: str | None = None) -> Expert:
        """Statistics, label and top examples of an expert, read from the database. Labels are those of the dashboard.

        Args:
            expert: id of the expert.
            examples: maximum number of top examples.
            database: SQLAlchemy URL. Default: ``MXD_DATABASE``, or the database beside the run or in the data folder.

        Raises:
            NotFoundError: the run is not indexed, or has no such expert.
        """
        from mxd.api.results import read_expert

        return read_expert(self.run, self._check_expert(expert), examples, database)

    def examples(self, expert: int, *, limit: int = 20, database: str | None = None) -> Examples:
        """Top examples of an expert, largest activation first, with ``to_pandas``. Arguments as ``expert``.

        Raises:
            NotFoundError: as ``expert``.
        """
        from mxd.api.results import Examples

        return Examples(self.name, expert, self.expert(expert, examples=limit, database=database).examples)


class MxD(Layer):
    """A Mixture of Decoders: expert n is the linear map W_n = D diag(c_n) of the hidden vector z.

    >>> layer = mxd.MxD.from_pretrained("my-run")
    >>> x = torch.randn(2, 5, layer.config.input_width)
    >>> layer(x).shape, layer.encode(x).shape, layer.hidden(x).shape, layer.expert_matrix(7).shape
    (torch.Size([2, 5, 16]), torch.Size([2, 5, 40]), torch.Size([2, 5, 24]), torch.Size([24, 16]))
    >>> torch.allclose(layer.decode(x, layer.encode(x)), layer(x), atol=1e-5)
    True
    """

    core: MxDCore
    core_class: ClassVar[type[nn.Module]] = MxDCore

    def hidden(self, x: Tensor) -> Tensor:
        """Hidden vector z [..., H] that all experts read, of an MLP input [..., I]."""
        return self.core.encode(self._rows(x)).reshape(*x.shape[:-1], -1)

    def expert_matrix(self, expert: int) -> Tensor:
        """W_n, [H, O]: the expert's output is its gate activation times z W_n.

        Raises:
            UserError: there is no such expert.
        """
        return self.core.expert_matrix(self._check_expert(expert))


class Transcoder(Layer):
    """A TopK transcoder, skip transcoder or autoencoder: expert n always adds row n of ``W_dec``.

    >>> sizes = {"num_experts": 64, "k": 4, "context_length": 16}
    >>> run = mxd.train(model, tokenizer, texts, layer=1, method="transcoder", name="tc", progress=False, **sizes)
    >>> mxd.Transcoder.from_pretrained("tc").W_dec.shape
    torch.Size([64, 16])
    """

    core: TranscoderCore
    core_class: ClassVar[type[nn.Module]] = TranscoderCore

    @property
    def W_dec(self) -> Tensor:
        """Output directions [N, O], one row per expert."""
        return self.core.direction_NO


def _routing(activations_TN: Tensor) -> Routing:
    """The active experts of each token. All N if gradients are recorded, since those of inactive ones are not 0."""
    largest = int((activations_TN != 0).sum(dim=1).max()) if activations_TN.numel() else 1
    columns = activations_TN.shape[1] if activations_TN.requires_grad else max(largest, 1)
    indices_TK = activations_TN.detach().abs().topk(columns, dim=1).indices
    return Routing(activations_TN.gather(1, indices_TK), indices_TK)
