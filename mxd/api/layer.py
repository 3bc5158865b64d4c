"""A trained layer as a PyTorch module, with everything that a script or notebook does with it.

Shapes: B rows, T tokens, I input width, H hidden width, O output width, N experts, K active experts, P tokens that are
computed. ``...`` stands for any leading dimensions, such as [B, T].
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mxd.api import models
from mxd.api.errors import speaks_python
from mxd.api.loading import Examples, experts_table, find_run, origin, read_first, resolve_medians
from mxd.api.models import Attachment, Edits, Reference, borrowed, parse_edits, unchanged
from mxd.backend.export.snapshots import names_in, route_command, steer_command
from mxd.trainer.analysis.expert import Expert, load_expert
from mxd.trainer.analysis.results import FoundExperts
from mxd.trainer.config.analysis import FindConfig
from mxd.trainer.config.layer import LayerConfig
from mxd.trainer.config.steering import SteeringConfig, SteeringMode
from mxd.trainer.errors import UserError
from mxd.trainer.inference.results import SteeredGeneration
from mxd.trainer.inference.routing import route
from mxd.trainer.inference.steering import edit_plans, steer, units_without_index
from mxd.trainer.language_model.architecture import Architecture
from mxd.trainer.language_model.mlp_hooks import EditedMlp, like_weights, replace_mlp
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import after_start, start_token_id
from mxd.trainer.layers.mxd import MxD as MxDCore
from mxd.trainer.layers.mxd import SparseLayer, routing_of
from mxd.trainer.layers.variants import Transcoder as TranscoderCore
from mxd.trainer.layers.variants import load_layer
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.display import unknown_expert
from mxd.trainer.utils.snapshot import Snapshot

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy.orm import Session

SUBMODULE = "mxd"
"""Name under which an attached layer is a submodule of its block."""


class Layer(nn.Module):
    """A trained layer of N experts, K of them active per token, in place of the MLP of one block.

    ``layer(x)`` maps the MLP's input to its output. Weights are in float32 on the CPU until ``layer.to`` moves them.

    >>> layer = mxd.Layer.from_pretrained("my-run")
    >>> batch = layer.tokenize(["One day", "The end."])
    >>> layer.activations(model, batch).shape
    torch.Size([2, 9, 40])
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
    >>> layer.experts().shape[0]
    40
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
    @speaks_python
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
        return cls(find_run(source, revision, data))

    @speaks_python
    def save_pretrained(self, folder: str | Path) -> Path:
        """Write the layer with its settings and tokenizer to a new folder, for ``from_pretrained``.

        A layer whose weights were changed, or that ``at_k`` returned, is written as it is, as a run with the folder's
        name.

        Raises:
            UserError: the folder is not empty.
        """
        return self.run.save_pretrained(folder, changed=self.core if self._differs_from_files() else None)

    def check_saved(self) -> None:
        """Check that the files of the run hold the layer as it is: the database and other programs read those."""
        if self._differs_from_files():
            raise UserError(
                f"This layer is not the one that run '{self.name}' has on disk: its weights or its K differ. Save it "
                "with layer.save_pretrained(folder), and pass mxd.load(folder)."
            )

    def _differs_from_files(self) -> bool:
        stored, own = load_layer(self.run.weights_folder), self.core.state_dict()
        return self.config.k != stored.config.k or any(
            not torch.equal(value.to(own[name]), own[name]) for name, value in stored.state_dict().items()
        )

    # ------------------------------------------------------------ facts

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.run.name

    @property
    def index(self) -> int:
        """Index of the block whose MLP the layer replaces."""
        return self.run.config.layer

    @property
    def config(self) -> LayerConfig:
        """Sizes N, K, I, H and O, method and activation."""
        return self.core.config

    @property
    def changed_k(self) -> int | None:
        """K of a layer that ``at_k`` returned; None if it is the run's."""
        return None if self.config.k == self.run.layer.config.k else self.config.k

    def extra_repr(self) -> str:
        config = self.config
        return f"name={self.name!r}, layer={self.index}, num_experts={config.num_experts}, k={config.k}"

    @speaks_python
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
        return output_TO.to(x).reshape(*x.shape[:-1], self.config.output_width)

    def encode(self, x: Tensor) -> Tensor:
        """Gate activations [..., N] of an MLP input [..., I]: at most K per token are not zero. Differentiable."""
        activations_TK, indices_TK = self.core.route(self._rows(x))
        dense_TN = activations_TK.new_zeros(len(activations_TK), self.config.num_experts)
        return dense_TN.scatter_add(1, indices_TK, activations_TK).reshape(*x.shape[:-1], self.config.num_experts)

    def decode(self, x: Tensor, activations: Tensor) -> Tensor:
        """Output [..., O] for an MLP input [..., I] and gate activations [..., N], dense or sparse, edited or not."""
        dense = activations.to_dense() if activations.is_sparse else activations
        routing = routing_of(dense.reshape(dense.shape[:-1].numel(), self.config.num_experts))
        output_TO = self.core.decode(self.core.dense_output(self._rows(x)), routing)
        return output_TO.to(x).reshape(*x.shape[:-1], self.config.output_width)

    def _rows(self, x: Tensor) -> Tensor:
        return like_weights(x.reshape(x.shape[:-1].numel(), x.shape[-1]), self.core)

    def _check_expert(self, expert: int) -> int:
        if not 0 <= expert < self.config.num_experts:
            raise UserError(unknown_expert(expert, self.name, self.config.num_experts))
        return expert

    # ------------------------------------------------------------ inside a model

    def tokenize(self, texts: str | Sequence[str]) -> dict[str, Tensor]:
        """Batch of texts for the model, padded on the left: the start token that the layer was trained with precedes
        each.

        >>> mxd.load("my-run").tokenize(["One day", "The end."])["input_ids"].shape
        torch.Size([2, 9])
        """
        tokenizer, listed = self.run.tokenizer, [texts] if isinstance(texts, str) else list(texts)
        start = start_token_id(tokenizer, self.run.config.text.start_token)
        encoded = tokenizer(listed, add_special_tokens=False, verbose=False)["input_ids"]
        rows = [after_start(start, ids) for ids in encoded]
        width = max(map(len, rows), default=0)
        padding = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else start
        return {
            "input_ids": torch.tensor([[*[padding] * (width - len(row)), *row] for row in rows]),
            "attention_mask": torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows]),
        }

    @speaks_python
    def activations(
        self, model: Any, batch: str | Sequence[str] | Mapping[str, Tensor] | Tensor, *, requires_grad: bool = False
    ) -> Tensor:
        """Gate activations of a batch as a sparse tensor [B, T, N]. Padding has none.

        Args:
            model: the Hugging Face model that the layer was trained on. It is computed up to the layer.
            batch: texts, which ``tokenize`` converts; or the result of ``tokenize`` or of
                ``tokenizer(texts, return_tensors="pt", padding=True)``; or token ids [B, T]. A warning says so if rows
                lack the start token of training, because the activations then differ from the dashboard's.
            requires_grad: record gradients to the model, to ``inputs_embeds`` in the batch and to the layer.

        Raises:
            UserError: the layer does not fit the model, or the batch has no token ids.
        """
        if not isinstance(batch, Mapping | Tensor):
            batch = self.tokenize(batch)
        with torch.set_grad_enabled(requires_grad):
            inputs = models.model_inputs(model, batch)
            _warn_of_missing_start(self, inputs)
            x_BTI = models.mlp_activations(model, architecture_of(self, model), self.index, self.core.reads, inputs)
            mask_BT = inputs.get("attention_mask", torch.ones(x_BTI.shape[:2], device=x_BTI.device))
            rows_BT = mask_BT.to(x_BTI.device).bool()
            activations_PK, indices_PK = self.core.route(like_weights(x_BTI[rows_BT], self.core))
            token_Q, column_Q = activations_PK.nonzero(as_tuple=True)
            positions_P2 = rows_BT.nonzero().to(token_Q.device)
            indices_3Q = torch.cat([positions_P2[token_Q].T, indices_PK[token_Q, column_Q].unsqueeze(0)])
            size = (*rows_BT.shape, self.config.num_experts)
            values_Q = activations_PK[token_Q, column_Q]
            return torch.sparse_coo_tensor(indices_3Q, values_Q, size, check_invariants=False).coalesce()

    @speaks_python
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
        return _spliced(self, model, edits, mode)

    @speaks_python
    def replace(self, model: Any) -> Attachment:
        """Replace the MLP of ``model`` by the layer until the returned handle is detached. Use it with ``with``.

        Raises:
            UserError: the layer does not fit the model.
        """
        return _spliced(self, model, {}, "replace")

    @speaks_python
    def attach(self, model: Any, edits: Edits | None = None, *, mode: SteeringMode = "replace") -> Attachment:
        """As ``steer``, and make this module a submodule ``mxd`` of its block.

        Its parameters are then among ``model.parameters()``: they move and train with the model.
        ``model.save_pretrained`` raises an error meanwhile, because transformers would load the original MLP again.
        Save the layer with ``layer.save_pretrained``, and the model after ``detach``.

        Raises:
            UserError: as ``steer``, or another layer is attached there.
        """
        block = architecture_of(self, model).block(self.index)
        if SUBMODULE in dict(block.named_children()):
            raise UserError(f"Layer {self.index} of the model already has an attached layer. Detach that one first.")
        attached = _spliced(self, model, edits or {}, mode)
        block.add_module(SUBMODULE, self)
        attached.callback(delattr, block, SUBMODULE)
        # The model, and those inside of it, such as its base model.
        for module in model.modules():
            if isinstance(module, Layer) or not hasattr(type(module), "save_pretrained"):
                continue
            guard = vars(module).setdefault("save_pretrained", models.GuardedSave(module))
            if isinstance(guard, models.GuardedSave):
                guard.attached += 1
                attached.callback(guard.release)
        return attached

    @speaks_python
    def find(
        self,
        model: Any,
        prompt: str | Sequence[str],
        wanted: str | Sequence[str] = (),
        *,
        tokenizer: Any = None,
        others: Sequence[AnyRun] = (),
        **settings: Any,
    ) -> FoundExperts:
        """Find the experts that make wanted text more probable at the lowest price.

        >>> found = layer.find(model, "One day", " red")
        >>> with layer.steer(model, [found.experts[0].edit]):
        ...     ids = model.generate(**batch, max_new_tokens=4)

        Args:
            model: the Hugging Face model of the layer.
            prompt: text before the wanted one, or several.
            wanted: continuation with its leading space, or several of which any counts.
            tokenizer: tokenizer of the model. Default: the run's own copy.
            others: runs of other layers that are searched too.
            settings: other fields of ``FindConfig``, such as ``unwanted=(" blue",)`` or ``hits=20``.

        Raises:
            UserError: a text is empty or too long, or a run belongs to another model.
        """
        from mxd.trainer.analysis.effect_search import find

        prompts, texts = ((each,) if isinstance(each, str) else tuple(each) for each in (prompt, wanted))
        config = FindConfig.from_keywords({"prompts": prompts, "wanted": texts}, settings)
        layers = [self, *map(as_layer, others)]
        with language_model_of(self, model, tokenizer) as language_model, unchanged(*(each.core for each in layers)):
            return find(language_model, [each.run for each in layers], config)

    # ------------------------------------------------------------ results of indexing

    @speaks_python
    def expert(self, expert: int, *, examples: int = 8, database: str | None = None) -> Expert:
        """Statistics, label and top examples of an expert, read from the database. Labels are those of the dashboard.

        Args:
            expert: id of the expert.
            examples: maximum number of top examples.
            database: SQLAlchemy URL. Default: ``MXD_DATABASE``, or the database beside the run or in the data folder.

        Raises:
            NotFoundError: the run is not indexed, or has no such expert.
        """
        place = self.name, self._check_expert(expert)

        def read(session: Session) -> Expert:
            label = names_in(session, {self.name: [expert]}).get(place)
            return load_expert(session, self.run, expert, label, examples)

        return read_first(self.run, database, read)

    @speaks_python
    def experts(self, *, database: str | None = None) -> pd.DataFrame:
        """All experts as a table with the columns of ``mxd export``: density, label, activations, effects and others.

        Args:
            database: as in ``expert``.

        Raises:
            NotFoundError: the run is not indexed.
            UserError: pandas is not installed.
        """
        return experts_table(self.run, database)

    @speaks_python
    def examples(self, expert: int, *, limit: int = 20, database: str | None = None) -> Examples:
        """Top examples of an expert, largest activation first, with ``to_pandas``. Arguments and errors as
        ``expert``."""
        return Examples(self.name, expert, self.expert(expert, examples=limit, database=database).examples)

    @speaks_python
    def show(
        self,
        what: int | str,
        edits: Edits | None = None,
        *,
        k: int | None = None,
        examples: int = 12,
        model: Any = None,
        tokenizer: Any = None,
        database: str | None = None,
        **settings: Any,
    ) -> Snapshot:
        """An expert, a text with its routing, or a steered pair, as the dashboard's *Share* writes it.

        Notebooks render it. ``save("file.html")`` writes a page that needs no network, ``save("file.md")`` Markdown.

        >>> layer.show("One day", model=model).save("day.html").name
        'day.html'

        Args:
            what: id of an expert, or a text.
            edits: continue the text without and with these edits, as in ``steer``. Default: route it.
            k: active experts per token of the routing. Default: the layer's K.
            examples: maximum number of examples of an expert.
            model: as in ``mxd.index``.
            tokenizer: as in ``mxd.index``.
            database: as in ``expert``, for labels too.
            settings: with edits, fields of ``SteeringConfig`` and ``Sampling``, such as ``seed=1``.

        Raises:
            UserError: the run is not indexed, the text is empty or too long, or an edit is invalid.
        """
        if not isinstance(what, str):  # also a NumPy integer, as in a table of experts
            command = ["mxd", "experts", self.name, str(what), "--examples", str(examples)]
            shown = self.expert(what, examples=examples, database=database)
            return shown.snapshot(origin(self.run, (), command, {}, database))
        with language_model_of(self, model, tokenizer) as language_model:
            if edits is None:
                k = self.changed_k if k is None else k
                routing = route(language_model, self.run, what, k)
                experts = {each.expert for token in routing.tokens for each in token.experts}
                return routing.snapshot(origin(self.run, experts, route_command(self.name, what, k), {}, database))
            parsed = resolve_medians(self.run, parse_edits(edits))
            config = SteeringConfig.from_keywords({"prompt": what, "edits": parsed}, {"k": self.changed_k, **settings})
            generation = SteeredGeneration.collect(self.name, what, steer(language_model, [self.run], config))
            experts = {edit.expert for edit in parsed if edit.run in (None, self.name)}
            seeds, command = {"sampling": config.sampling.seed}, steer_command(self.name, config)
            return generation.snapshot(parsed, origin(self.run, experts, command, seeds, database))


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
        z_TH = self.core.encode(self._rows(x))
        return z_TH.reshape(*x.shape[:-1], z_TH.shape[-1])

    @property
    def mixing_centre(self) -> Tensor:
        """m [O] of centred mixing, y = (a C - m) * (z D) + b_out; zeros in the paper's form."""
        centred = self.config.mixing == "centred"
        return self.core.mixing_centre_M if centred else torch.zeros(self.core.mixing_width)

    @speaks_python
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


def load(
    source: str | Path, *, revision: str | None = None, data: str | Path | None = None
) -> MxD | Transcoder | Layer:
    """Load a trained layer of any kind; arguments and errors as ``MxD.from_pretrained``.

    >>> layer = mxd.load("my-run")
    >>> type(layer).__name__, layer.index, layer.config.k
    ('MxD', 1, 4)
    """
    run = find_run(source, revision, data)
    kinds: tuple[type[Layer], ...] = (MxD, Transcoder)
    return next((kind for kind in kinds if isinstance(run.layer, kind.core_class)), Layer)(run)


AnyRun = Layer | Run | str | Path
"""A trained layer, or the name or folder of a run."""


def as_layer(run: AnyRun) -> Layer:
    """Return the layer of a run that is given as an object, a name or a folder."""
    if isinstance(run, Layer):
        return run
    return Layer(run) if isinstance(run, Run) else load(run)


def on_disk(run: AnyRun) -> Layer:
    """Return the layer as the files of its run hold it."""
    if isinstance(run, Layer):
        run.check_saved()
    return as_layer(run)


# ---------------------------------------------------------------- inside a model


@contextmanager
def language_model_of(
    layer: Layer, model: PreTrainedModel | None = None, tokenizer: PreTrainedTokenizerBase | None = None
) -> Iterator[LanguageModel]:
    """Yield the language model of a layer: ``model``, else the one it was trained on in this process, else by name."""
    reference, source = layer.reference, layer.run.language_model_source
    chosen: tuple[Any, Any] | None = (model, tokenizer or layer.run.tokenizer) if model is not None else reference.model
    if chosen is not None:
        architecture_of(layer, chosen[0])  # checks and warns
        with borrowed(*chosen, source) as language_model:
            yield language_model
        return
    if reference.loaded is None:
        reference.loaded = LanguageModel.load(source)
    yield reference.loaded


def _spliced(layer: Layer, model: Any, edits: Edits, mode: SteeringMode) -> Attachment:
    """Compute a layer inside ``model``."""
    parsed, stack = resolve_medians(layer.run, parse_edits(edits)), Attachment()
    units = units_without_index([layer.run], SteeringConfig(prompt="", edits=parsed))
    plan = edit_plans([layer.run], parsed, units)[layer.index]
    architecture = architecture_of(layer, model)
    text = models.GrowingText(layer.run, plan) if plan.depends_on_position else None
    if text is not None:
        stack.callback(model.register_forward_pre_hook(text.before_forward, with_kwargs=True).remove)
    function = EditedMlp(layer.core, models.AddedOutput(plan, text), mode)
    replace_mlp(architecture.block(layer.index), architecture.mlp_names(layer.index), function, stack)
    return stack


def architecture_of(layer: Layer, model: Any) -> Architecture:
    """Return the blocks of ``model``, checked against the widths of ``layer``, with a warning if it calls itself
    otherwise than the model of training. Raises UserError if the architecture is unsupported, or the widths differ."""
    architecture = Architecture(model, getattr(model, "name_or_path", "") or type(model).__name__)
    shape, config = architecture.mlp_shape(layer.index), layer.config
    expected = shape.output_width if layer.core.reads == "mlp-output" else shape.input_width
    if (expected, shape.output_width) != (config.input_width, config.output_width):
        raise UserError(
            f"'{layer.name}' has widths {config.input_width} -> {config.output_width}, but the MLP of layer "
            f"{layer.index} of this model has {expected} -> {shape.output_width}. Use the model that it was trained "
            f"on: {layer.run.config.language_model}."
        )
    source, trained = architecture.source, layer.run.config.language_model
    is_trained_on = layer.reference.model is not None and layer.reference.model[0] is model
    names = {Path(name).name.lower() for name in (trained, layer.run.language_model_source)}
    # The Hub's cache has the name two folders above a snapshot.
    own = {part.rpartition("--")[2].lower() for part in Path(source).parts[-3:]}
    if not is_trained_on and not names & own:
        warnings.warn(
            f"'{layer.name}' was trained on '{trained}', and this model is '{source}'. Their widths are equal, but a "
            f"layer only fits the model that it was trained on. If it is that one: model.name_or_path = '{trained}'.",
            stacklevel=3,
        )
    return architecture


# ---------------------------------------------------------------- activations


def _warn_of_missing_start(layer: Layer, inputs: Mapping[str, Tensor]) -> None:
    """Warn if rows do not begin with the start token that the layer was trained with."""
    ids_BT = inputs.get("input_ids")
    if ids_BT is None or not ids_BT.numel():
        return
    mask_BT = inputs.get("attention_mask", torch.ones_like(ids_BT)).bool()
    first_B = ids_BT.gather(1, mask_BT.int().argmax(dim=1, keepdim=True))[:, 0]
    start = start_token_id(layer.run.tokenizer, layer.run.config.text.start_token)
    missing = int((first_B != start).sum())
    if missing:
        warnings.warn(
            f"{missing} of {len(ids_BT)} rows do not begin with the start token "
            f"'{layer.run.tokenizer.convert_ids_to_tokens(start)}', with which routing and the dashboard begin every "
            "text. Activations differ without it. Pass layer.tokenize(texts), or the texts themselves.",
            stacklevel=4,
        )
