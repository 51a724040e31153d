"""Explains why a norm cannot be folded into adjacent weights, and which module prevents it."""

from collections.abc import Callable, Collection, Iterable
from itertools import takewhile

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from normlab.any_model.surgery.flow import Flow, Node
from normlab.any_model.tracing.norm_modules import is_norm

_USE_OR_REMOVE = "pass a batch that uses it, or remove it from the model if it is never used"


def parameter_data(model: nn.Module, name: str) -> Tensor:
    """Return the values of a parameter or buffer, which can be changed in place."""
    path, _, attribute = name.rpartition(".")
    return getattr(model.get_submodule(path), attribute).data


def why_mean_stays(
    flow: Flow, path: str, model: nn.Module, layer_norms: Collection[str]
) -> str | None:
    """Return why a layer norm's input cannot be centered by changing the weights that produce it.

    Returns None if it can be.
    """
    if why := _why_unclear(flow, path):
        return why
    for source in flow.sources_of_norm(path):
        if source.op == "norm":
            return f"its input contains the output of {source.name} (post-norm)"
        if source.op not in ("product", "convolution", "table", "weight"):
            return f"its input contains the result of {source.label}"
        if why := _why_visible(flow, source, source, layer_norms):
            return why
        for name in filter(None, (source.name, source.bias)):
            for use in flow.uses[name] if source.op != "weight" else ():
                if use.op != source.op or name == use.bias != source.bias:
                    return f"{name} is also read by {use.label}{_cure(model, name)}"
                if why := _why_visible(flow, use, source, layer_norms):
                    return why
    width = flow.norms[path][0].width
    if unused := _unused(flow, model, width, _may_write):
        return f"{unused} was not used, but may add to its input; {_USE_OR_REMOVE}"
    if norm := _unused_norm(flow, model, width):
        return f"{norm} was not used, but may read its input or add to it; {_USE_OR_REMOVE}"
    return None


def _why_unclear(flow: Flow, path: str) -> str | None:
    """Return why neither part of a norm can be folded, whatever is around it, or None."""
    if path in flow.widths_of_several:
        return f"{path} takes several tensors"
    count = flow.most_calls[path]
    return f"{path} is called {count} times" if count > 1 else None


def _why_visible(flow: Flow, node: Node, source: Node, layer_norms: Collection[str]) -> str | None:
    """Return what would change with a result's mean over features, or None if nothing would."""
    for end in flow.ends(node):
        if end is None:
            return f"the sum with {source.name} is an output of the model"
        if end.op != "norm" or end.name not in layer_norms:
            return f"{end.label} reads the sum with {source.name} without a layer norm in between"
    return None


def why_gain_stays(flow: Flow, path: str, model: nn.Module, *, bias: Tensor | None) -> str | None:
    """Return why a norm's gain and bias cannot be folded into products, or None if they can."""
    calls = flow.norms[path]
    if why := _why_unclear(flow, path):
        return why
    parameters = {id(x) for x in model.get_submodule(path).parameters()}
    homes = [id(x) for m in model.modules() for x in m.parameters(recurse=False)]
    if any(homes.count(parameter) > 1 for parameter in parameters):
        return f"{path} shares its gain or bias with another module"
    ends = flow.readers_of_norm(path)
    for end in ends:
        if end is None:
            return "its output is an output of the model"
        if end.op != "product":
            return f"{end.label} reads its output" + " (post-norm)" * (end.op == "sum")
        if others := [use for use in flow.uses[end.name] if use not in ends]:
            return f"{end.name} is also read by {others[0].label}{_cure(model, end.name)}"
        if end.x is None or not {*flow.sources(end.x, ("move",))} <= {*calls}:
            return f"{end.label} also reads something else"
        if bias is not None and bias.any():
            if end.bias is None and not _takes_bias(model, end.name):
                return f"{end.name} has no bias that could take the norm's"
            if end.bias and any(use not in ends for use in flow.uses[end.bias]):
                return f"{end.bias} is also read by another module"
    if not ends:
        return "nothing reads its output"
    scope = _common_module(node for node in (*calls, *ends) if node)
    if unused := _unused(flow, model, calls[0].width, _may_read, scope):
        return f"{unused} was not used, but may read its output; {_USE_OR_REMOVE}"
    if norm := _unused_norm(flow, model, calls[0].width, scope):
        return f"{norm} was not used, but the same weights may read it; {_USE_OR_REMOVE}"
    return None


def _common_module(nodes: Iterable[Node]) -> str:
    """Return the path of the innermost module that contains the modules of all operations.

    What a module computes can only reach modules outside it if it returns it.
    """
    levels = zip(*(node.inside.split(".") for node in nodes), strict=False)
    shared = takewhile(lambda names: len(names) == 1, map(set, levels))
    return ".".join(name for names in shared for name in names)


def _unused(
    flow: Flow,
    model: nn.Module,
    width: int,
    test: Callable[[nn.Module, Tensor, int], bool],
    scope: str = "",
) -> str | None:
    """Return a weight that no pass has used and for which `test(module, weight, width)` is true.

    It is searched in the module at the path `scope`. A pass that uses it may read a norm's output
    with it, or add it to a norm's input. A weight counts if no weight of its module is used, as in
    an optional embedding, a head or an expert; or if a weight is used whose name differs only in an
    index, as in a list of experts. Others are taken for weights that no pass ever uses, such as a
    mask token that is a parameter of a module with used weights. The gains and biases of norms are
    left out, because the flow does not record what happens inside a norm (see `_unused_norm`).
    """
    weights = dict(model.named_parameters())
    names = [name for name, nodes in flow.uses.items() if nodes and name in weights]
    used, copies = {id(weights[name]) for name in names}, {_without_indices(name) for name in names}
    for name, weight in model.named_parameters(remove_duplicate=False):
        module = model.get_submodule(name.rpartition(".")[0])
        in_scope = name.startswith(f"{scope}." if scope else "")
        if id(weight) in used or is_norm(module) or not in_scope or not test(module, weight, width):
            continue
        module_is_used = any(id(x) in used for x in module.parameters())
        if not module_is_used or _without_indices(name) in copies:
            return name
    return None


def _unused_norm(flow: Flow, model: nn.Module, width: int, scope: str = "") -> str | None:
    """Return the path of a norm over `width` features in a module that no pass has called.

    It may take the place of another norm in a later pass, as in a list of one norm per language.
    """
    for path, module in model.named_modules():
        if path in flow.called or not path.startswith(f"{scope}." if scope else ""):
            continue
        names = [f"{path}.{name}" for name, _ in module.named_parameters()]
        if is_norm(module) and _may_normalize(module, width) and not any(map(flow.uses.get, names)):
            return path
    return None


def _may_normalize(norm: nn.Module, width: int) -> bool:
    """Return whether a norm may be over `width` features, by the shapes of its gain and buffers.

    A norm that has neither, and no `normalized_shape`, may be over any number of features.
    """
    values = (*norm.parameters(), *norm.buffers())
    shapes = [x.shape for x in values if x.ndim] + [getattr(norm, "normalized_shape", ())]
    sizes = {shape[-1] for shape in shapes if shape}
    return not sizes or width in sizes


def _without_indices(name: str) -> str:
    """Return the name of a weight with `*` for each index: `experts.*.weight`."""
    return ".".join("*" if part.isdecimal() else part for part in name.split("."))


def _may_read(module: nn.Module, weight: Tensor, width: int) -> bool:
    """Return whether a weight may be a matrix that reads `width` features."""
    if isinstance(module, nn.Linear | _ConvNd):
        return weight.ndim > 1 and _reads_and_writes(module)[0] == width
    if isinstance(module, nn.Embedding) or weight.ndim < 2 or 1 in weight.shape[-2:]:
        return False
    return width in weight.shape[-2:]


def _may_write(module: nn.Module, weight: Tensor, width: int) -> bool:
    """Return whether a weight may be a matrix, a table or a vector that writes `width` features."""
    if isinstance(module, nn.Linear | _ConvNd):
        return weight.ndim > 1 and _reads_and_writes(module)[1] == width
    return width in weight.shape[-2:]


def _reads_and_writes(module: nn.Linear | _ConvNd) -> tuple[int, int]:
    """Return the numbers of features that a layer reads and writes."""
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    return module.in_channels, module.out_channels


def _cure(model: nn.Module, name: str) -> str:
    """Return how to untie a weight that an embedding shares with a linear layer.

    Return "" for other weights.
    """
    weight = parameter_data(model, name)
    homes = [(m, x) for m in model.modules() for x in m.parameters(recurse=False)]
    kinds = {type(m) for m, x in homes if x.data_ptr() == weight.data_ptr()}
    return " (tied; untie=True gives one a copy)" * (kinds >= {nn.Embedding, nn.Linear})


def _takes_bias(model: nn.Module, weight: str) -> bool:
    """Return whether a weight belongs to a linear layer, which can be given a bias."""
    return isinstance(model.get_submodule(weight.rpartition(".")[0]), nn.Linear)
