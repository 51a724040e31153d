"""Explains why a norm cannot be folded into adjacent weights, and which module prevents it."""

from collections.abc import Collection

from torch import Tensor, nn

from normlab.any_model.surgery.flow import Flow, Node


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
    if len(flow.norms[path]) > 1:
        return f"{path} is called {len(flow.norms[path])} times"
    for source in flow.sources(flow.norms[path][0].passed[0]):
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
    return None


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
    if len(calls := flow.norms[path]) > 1:
        return f"{path} is called {len(calls)} times"
    parameters = {id(x) for x in model.get_submodule(path).parameters()}
    homes = [id(x) for m in model.modules() for x in m.parameters(recurse=False)]
    if any(homes.count(parameter) > 1 for parameter in parameters):
        return f"{path} shares its gain or bias with another module"
    ends = flow.ends(calls[0], ("move",))
    for end in ends:
        if end is None:
            return "its output is an output of the model"
        if end.op != "product":
            return f"{end.label} reads its output" + " (post-norm)" * (end.op == "sum")
        if others := [use for use in flow.uses[end.name] if use not in ends]:
            return f"{end.name} is also read by {others[0].label}{_cure(model, end.name)}"
        if [*flow.sources(end.x, ("move",))] != [calls[0]]:  # pyright: ignore[reportArgumentType]
            return f"{end.label} also reads something else"
        if bias is not None and bias.any():
            if end.bias is None and not _takes_bias(model, end.name):
                return f"{end.name} has no bias that could take the norm's"
            if end.bias and any(use not in ends for use in flow.uses[end.bias]):
                return f"{end.bias} is also read by another module"
    return None if ends else "nothing reads its output"


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
