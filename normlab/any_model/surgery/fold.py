"""Folds norms exactly into adjacent weights, so that a simpler model computes the same outputs.

A layer norm whose input has mean 0 is an RMS norm. Its input is a sum of products with weights and
of rows of tables. If only layer norms read that sum, all these weights can be centered (Ashkboos et
al. 2024, SliceGPT, section 3.2). If only products with weights read a norm's output, the norm's
gain and bias can be folded into these weights (Graef et al. 2024, FlashNorm).
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normlab.any_model.batches.example import Forward, ModelFailed
from normlab.any_model.batches.from_batch import first_batches, run_batch
from normlab.any_model.batches.outputs import first_float, output_tensors
from normlab.any_model.surgery.feature_norm import LAYER_NORM, FeatureNorm, feature_norm_of
from normlab.any_model.surgery.flow import Flow, Node
from normlab.any_model.surgery.foldable import parameter_data, why_gain_stays, why_mean_stays
from normlab.any_model.tracing.calls import slow_path, uncompiled
from normlab.any_model.tracing.float64 import float64_operations
from normlab.any_model.tracing.functional_norms import functions_in_words
from normlab.any_model.tracing.norm_modules import is_norm
from normlab.any_model.tracing.norm_trial import copied
from normlab.any_model.tracing.restore import preserved
from normlab.any_model.tracing.supported import plain_model, replaced_forward
from normlab.errors import UserError

EXACT = 1e-9
"""The largest allowed change of an output in float64, relative to the output's largest value."""


@torch.no_grad()
def fold_norms(
    model: nn.Module,
    batches: Any,
    *,
    untie: bool = False,
    forward: Callable[[nn.Module, Any], Any] | None = None,
) -> "FoldedModel":
    """Return a copy of a model whose layer norms are RMS norms, and whose norms have no gain.

    The copy computes the same outputs only in evaluation mode, because the mean is not 0 after
    dropout. Passes over `batches` (dicts, tuples or tensors, of which at most 8 are used) show
    which layers read which norm. The norm is kept, and the table says why, if folding would change
    the output, or if no batch uses an expert, a layer or an embedding that may read the norm or add
    to its input, or another norm that may take its place. An unused parameter of a module with used
    weights, such as a mask token, does not count: if it is used later, the folded model's outputs
    may differ. If an output layer shares the weights of the token embedding, norms are folded into
    it only with `untie`, which gives it a copy of the weights. The folded model has the dtypes of
    the model. Folded gains become ones, or zeros if the norm adds 1.

    Raises UserError if the model has no layer or RMS norms over the last axis, if the outputs in
    float64 differ by more than 1e-9, or if the model cannot be run.
    """
    model = plain_model(model)
    used = first_batches(batches)
    dtypes = {name: x.dtype for name, x in [*model.named_parameters(), *model.named_buffers()]}
    folded = copied(model).eval()
    if untie:
        _untie(folded)
    with slow_path(), uncompiled():
        passes = [partial(_preserved_pass, folded, forward, batch) for batch in used]
        norms = _norms(folded, passes)
        flow = _recorded(folded, norms, passes)
        before = [_outputs(each) for each in passes]
        folded.double()
        table = _fold(folded, flow, norms)
        error = max(
            (_difference(a, _outputs(each)) for a, each in zip(before, passes, strict=True)),
            key=lambda x: (math.isnan(x), x),
        )
    if not error <= EXACT:
        raise UserError(
            f"the folded model's outputs differ by {error:.1g} in float64, more than {EXACT}; is "
            "its forward pass random, or does it change its own weights?"
        )
    usual = next((x.dtype for x in model.parameters() if x.is_floating_point()), torch.float32)
    for name, x in [*folded.named_parameters(), *folded.named_buffers()]:
        if x.is_floating_point():
            x.data = x.data.to(dtypes.get(name, usual))
    modes = {name: module.training for name, module in model.named_modules()}
    for name, module in folded.named_modules():
        module.training = modes.get(name, model.training)
    return FoldedModel(folded, table, error)


class FoldOutcome(NamedTuple):
    """Whether a part of a norm was folded and, if not, why not."""

    folded: bool
    why_not: str = ""

    def __str__(self) -> str:
        return "folded" if self.folded else f"stays: {self.why_not}"


@dataclass
class NormFold:
    """Whether a norm's subtraction of the mean was folded, and whether its gain and bias were.

    `mean` is None if the norm subtracts no mean. `gain` is None if it has neither gain nor bias.
    """

    site: str
    kind: str
    mean: FoldOutcome | None = None
    gain: FoldOutcome | None = None


@dataclass(frozen=True)
class FoldedModel:
    """A folded model, the result for each norm, and the largest change of an output in float64.

    `error` is this change relative to the output's largest value. `str()` is a table of the norms.
    """

    model: nn.Module = field(repr=False)
    table: list[NormFold]
    error: float

    def __str__(self) -> str:
        rows = [("site", "norm", "mean", "gain and bias")]
        rows += [
            (norm.site, norm.kind, *(str(x or "has none") for x in (norm.mean, norm.gain)))
            for norm in self.table
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        means = [norm.mean.folded for norm in self.table if norm.mean]
        gains = [norm.gain.folded for norm in self.table if norm.gain]
        count = f"gains folded: {sum(gains)} of {len(gains)}; "
        count += f"layer norms that are RMS norms now: {sum(means)} of {len(means)}"
        return "\n".join([*lines, f"{count}; float64 outputs differ by {self.error:.1g}"])


class FoldedRMSNorm(nn.Module):
    """RMS norm with or without gain and bias. For an input with mean 0, it equals layer norm."""

    def __init__(
        self, width: int, eps: float, weight: nn.Parameter | None, bias: nn.Parameter | None
    ) -> None:
        super().__init__()
        self.normalized_shape, self.eps = (width,), eps
        self.weight: nn.Parameter | None
        self.bias: nn.Parameter | None
        self.register_parameter("weight", weight)
        self.register_parameter("bias", bias)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Normalize the first tensor, which may have any name, over the last axis.

        Other arguments, such as a mask, are ignored.
        """
        x = first_float(args, kwargs)
        y = F.rms_norm(x, self.normalized_shape, self.weight, self.eps)
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        return f"{self.normalized_shape[0]}, eps={self.eps}"


def _untie(model: nn.Module) -> None:
    """Give each linear layer that shares an embedding's weights its own copy."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for module in model.modules():
        if isinstance(module, nn.Linear) and id(module.weight) in tables:
            module.weight = nn.Parameter(module.weight.data.clone())
    config: Any = getattr(model, "config", None)
    if hasattr(config, "tie_word_embeddings"):
        config.tie_word_embeddings = False


_Pass = Callable[[Callable[[Callable[[], Any]], Any]], Any]
"""Calls a function with a forward pass, which the function runs, and returns its result."""


def _preserved_pass(
    model: nn.Module,
    forward: Forward | None,
    batch: Any,
    use: Callable[[Callable[[], Any]], Any],
) -> Any:
    """Return `use(call)` for the call of a model on a batch, and restore all state afterwards.

    Otherwise the model would keep the tensors that it caches in a pass, such as a table of
    positions, in inference mode or in float64.
    """
    with preserved(model, (batch, forward)):
        return use(partial(run_batch, model, batch, forward))


def _recorded(model: nn.Module, norms: Collection[str], passes: Iterable[_Pass]) -> Flow:
    """Return the flow of features in passes of a model whose norms have the paths `norms`."""
    flow = Flow(model, norms)
    for each in passes:
        each(flow.run)
    return flow


def _outputs(each: _Pass) -> list[Tensor]:
    """Return a model's floating-point outputs in a pass, computed in float64.

    Raises UserError if the model cannot be run in float64.
    """

    def in_float64(call: Callable[[], Any]) -> list[Tensor]:
        with float64_operations():
            tensors = output_tensors(call())
        return [x.double() for x in tensors if x.is_floating_point()]

    try:
        return each(in_float64)
    except ModelFailed as error:
        raise UserError(f"folding cannot be verified in float64: {error}") from error


def _difference(before: list[Tensor], after: list[Tensor]) -> float:
    """Return the largest change of a tensor between two results, relative to its largest value.

    It is NaN if a value is NaN. Raises UserError if the results have no floating-point tensor.
    """
    pairs = zip(before, after, strict=True)
    each = [(a - b).abs().max() / a.abs().max().clamp(min=1e-300) for a, b in pairs]
    if not each:
        raise UserError(
            "the model returns no floating-point tensor, so folding cannot be verified; return the "
            "logits with forward=lambda model, batch: ..."
        )
    return float(torch.stack(each).max())


def _fold(model: nn.Module, flow: Flow, known: Mapping[str, FeatureNorm]) -> list[NormFold]:
    """Fold the norms of a model in float64, and return the result for each."""
    centered = {path for path, norm in known.items() if norm.kind == LAYER_NORM}
    rows = [NormFold(path, norm.kind) for path, norm in known.items()]
    sources: dict[str, Node] = {}
    for row in rows:
        if row.site in centered:
            why_not = why_mean_stays(flow, row.site, model, centered)
            unknown = "its eps is unknown" if known[row.site].eps is None else None
            row.mean = _outcome(why_not or unknown)
        if row.mean and row.mean.folded:
            sources |= {node.name: node for node in flow.sources_of_norm(row.site)}
        norm = known[row.site]
        if norm.weight or norm.bias:
            row.gain = _outcome(why_gain_stays(flow, row.site, model, bias=norm.shift))
    for source in sources.values():
        _center(model, source)
    for row in rows:
        gain_folded = row.gain is not None and row.gain.folded
        if gain_folded:
            readers = flow.readers_of_norm(row.site)
            _fold_gain(model, known[row.site], [node for node in readers if node])
        if row.mean and row.mean.folded:
            _replace(model, row.site, known[row.site], without_bias=gain_folded)
    return rows


def _outcome(why_not: str | None) -> FoldOutcome:
    return FoldOutcome(folded=why_not is None, why_not=why_not or "")


def _center(model: nn.Module, source: Node) -> None:
    """Subtract the mean over output features from a weight, and from its bias."""
    weight = parameter_data(model, source.name)
    over_rows = source.op == "convolution" or (source.op == "product" and not source.transposed)
    weight -= weight.mean(0 if over_rows else -1, keepdim=True)
    if source.bias:
        bias = parameter_data(model, source.bias)
        bias -= bias.mean()


def _fold_gain(model: nn.Module, norm: FeatureNorm, products: list[Node]) -> None:
    """Fold a norm's gain and bias into the weights and biases of products, and reset the norm."""
    for name, product in {node.name: node for node in products}.items():
        weight = parameter_data(model, name)
        rows = weight if not product.transposed else weight.T  # [out, in], a view
        if norm.shift is not None:
            added = rows @ norm.shift
            if product.bias:
                parameter_data(model, product.bias).add_(added)
            else:
                model.get_submodule(name.rpartition(".")[0]).bias = nn.Parameter(added)
        rows *= norm.gain.to(rows.device)
    if norm.weight:
        parameter_data(norm.module, norm.weight).fill_(norm.plain)
    if norm.bias:
        parameter_data(norm.module, norm.bias).zero_()


def _replace(model: nn.Module, path: str, norm: FeatureNorm, *, without_bias: bool) -> None:
    """Replace a layer norm with an RMS norm of its eps and gain, and with its bias or without.

    A folded gain stays as ones, because some models read the dtype of their norms' weights.
    """
    gain = None if norm.weight is None else nn.Parameter(norm.gain)
    bias = None if without_bias or norm.bias is None else getattr(norm.module, norm.bias)
    model.set_submodule(path, FoldedRMSNorm(norm.width, norm.eps or 0.0, gain, bias))
    layer = model.get_submodule(path.rpartition(".")[0])
    if isinstance(layer, nn.TransformerEncoderLayer):
        layer.activation_relu_or_gelu = 0  # its fast path computes layer norms


def _norms(model: nn.Module, passes: Sequence[_Pass]) -> dict[str, FeatureNorm]:
    """Return a model's layer and RMS norms, keyed by path. Raise UserError if there are none."""
    modules = {path: module for path, module in model.named_modules() if is_norm(module)}
    flow = _recorded(model, modules, passes)
    widths = {path: calls[0].width for path, calls in flow.norms.items() if calls}
    widths |= flow.widths_of_several
    tried = {path: feature_norm_of(modules[path], width) for path, width in widths.items()}
    if not any(tried.values()):
        if owner := replaced_forward(model):
            raise UserError(
                f"{owner} has a forward function that runs the original instead of the copy; "
                "restore its own forward"
            )
        functions = passes[0](partial(functions_in_words, model))
        raise UserError(
            f"the model has no layer or RMS norm over the last axis of its input{functions}"
        )
    return {path: norm for path, norm in tried.items() if norm is not None}
