"""Records how features flow through a model: from its weights to its norms, and onwards.

Every operation of one or more forward passes is recorded. Only these kinds matter for folding: a
matrix product with a weight (`product`), a convolution (`convolution`), a row of a table
(`table`), a weight itself (`weight`), a norm (`norm`), and operations that do not mix features:
moving or averaging positions (`move`), multiplying by a factor per position (`scale`), and adding
(`sum`). All others are `other`. Features are on the last axis, except that the features of a
convolution are on another axis until they are moved to the last one, as in the patches of a vision
transformer.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from normlab.any_model.batches.outputs import output_tensors

Op = Literal["product", "convolution", "table", "weight", "norm", "move", "scale", "sum", "other"]
LINEAR: tuple[Op, ...] = ("move", "scale", "sum")
"""Operations that preserve a mean of 0 over the features of each position."""
_MOVES = {
    *("view", "_unsafe_view", "reshape", "flatten", "unflatten", "expand", "expand_as", "view_as"),
    *("transpose", "permute", "unsqueeze", "squeeze", "slice", "select", "narrow", "split"),
    *("chunk", "unbind", "index", "index_select", "clone", "contiguous", "detach", "alias", "to"),
    *("_to_copy", "lift_fresh", "dropout", "dropout_", "cat", "stack", "repeat", "type_as", "mean"),
}
_TURNS = ("t", "transpose", "numpy_T")
_ALIASES = ("detach", "alias", "to", "lift_fresh")
_CONVOLUTIONS = {"conv1d": 1, "conv2d": 2, "conv3d": 3}
"""Convolutions by name, with the number of axes after the channels."""
_RESHAPES = ("view", "_unsafe_view", "reshape", "flatten")
_SAME = ("contiguous", "clone", "detach", "alias", "to", "_to_copy", "dropout")


@dataclass(eq=False)
class Node:
    """The result of an operation.

    `passed` are the inputs whose features reach the result unmixed, and `users` are the results of
    the operations that take this one as an input. `name` is a norm's path or a weight's name. A
    product also has its input `x` and the name of its bias; it is `transposed` if its weight is a
    matrix [in, out]. `axis` is the axis of the features if that is not the last axis. `inside` is
    the path of the module that ran the operation or, for a norm, called it.
    """

    op: Op
    label: str  # the operation and the module that ran it, for messages
    width: int
    passed: Sequence["Node"] = ()
    name: str = ""
    x: "Node | None" = None
    bias: str | None = None
    transposed: bool = False
    axis: int | None = None
    inside: str = ""
    users: list["Node"] = field(default_factory=list)


class _NormUnderWay(NamedTuple):
    """A norm whose forward pass is running, and the node of its input."""

    path: str
    x: Node


class _Product(NamedTuple):
    """The nodes of a matrix product. `transposed` is whether the weight is [in, out]."""

    x: Node
    weight: Node
    bias: Node | None
    transposed: bool


class Flow(TorchDispatchMode):
    """Records the operations of forward passes of a model whose norms have the paths `norms`.

    Afterwards, `norms` has the nodes of each norm's calls in all passes, keyed by the norm's path,
    and `most_calls` its largest number of calls in one pass. `uses` has the nodes that read each
    weight, keyed by its name. `outputs` has the nodes that the model returns. `called` has the
    paths of all modules that were called, and `widths_of_several` the width of the first input of
    each norm that was called with several floating-point tensors, such as a gate. The operations
    inside such a norm are recorded instead.
    """

    def __init__(self, model: nn.Module, norms: Collection[str]) -> None:
        super().__init__()
        self.norms: dict[str, list[Node]] = {path: [] for path in norms}
        self.most_calls: dict[str, int] = dict.fromkeys(norms, 0)
        self.uses: dict[str, list[Node]] = defaultdict(list)
        self.outputs: list[Node] = []
        self.called: set[str] = set()
        self.widths_of_several: dict[str, int] = {}
        self._model, self._paths = model, norms
        self._weights: dict[int, Node] = {}
        self._nodes: dict[int, Node] = {}  # of the weights, and of the pass that is running
        self._held: list[Tensor] = []  # an id belongs to one tensor only while that tensor is alive
        self._inside: list[str] = []  # paths of the modules that are running
        self._norm: _NormUnderWay | None = None
        for name, weight in [*model.named_parameters(), *model.named_buffers()]:
            if weight.ndim:
                self._weights[id(weight)] = Node("weight", name, weight.shape[-1], name=name)

    def run(self, call: Callable[[], Any]) -> None:
        """Run a forward pass and record its operations, in addition to those of earlier passes."""
        self._nodes, self._held = dict(self._weights), []
        counts = {path: len(calls) for path, calls in self.norms.items()}
        with ExitStack() as hooks:
            for path, module in self._model.named_modules():
                enter, leave = partial(self._enter, path), partial(self._leave, path)
                before = module.register_forward_pre_hook(enter, with_kwargs=True)
                after = module.register_forward_hook(leave, with_kwargs=True)
                hooks.callback(before.remove)
                hooks.callback(after.remove)
            with torch.inference_mode(), self:
                tensors = output_tensors(call())
        self.outputs += [self._nodes[id(x)] for x in tensors if id(x) in self._nodes]
        for path, calls in self.norms.items():
            self.most_calls[path] = max(self.most_calls[path], len(calls) - counts[path])

    def sources_of_norm(self, path: str) -> list[Node]:
        """Return the sources of the features that reach a norm in any pass."""
        inputs = [x for call in self.norms[path] for x in call.passed]
        return [*dict.fromkeys(source for x in inputs for source in self.sources(x))]

    def readers_of_norm(self, path: str) -> list[Node | None]:
        """Return what reads a norm's output in any pass, directly or after moving positions."""
        calls = self.norms[path]
        return [*dict.fromkeys(end for call in calls for end in self.ends(call, ("move",)))]

    def ends(self, node: Node, through: Collection[Op] = LINEAR) -> list[Node | None]:
        """Return the nodes that read a node's features, directly or after operations in `through`.

        None stands for an output of the model.
        """
        readers: dict[Node | None, None] = {}
        waiting, visited = [node], {node}
        while waiting:
            at = waiting.pop()
            if at in self.outputs:
                readers[None] = None
            for user in at.users:
                if not (at in user.passed and user.op in through):
                    readers[user] = None
                elif user not in visited:
                    visited.add(user)
                    waiting.append(user)
        return [*readers]

    def sources(self, node: Node, through: Collection[Op] = LINEAR) -> list[Node]:
        """Return the nodes whose features reach a node only through operations in `through`."""
        sources: dict[Node, None] = {}
        waiting, visited = [node], {node}
        while waiting:
            at = waiting.pop()
            if at.op not in through:
                sources[at] = None
            for source in at.passed if at.op in through else ():
                if source not in visited:
                    visited.add(source)
                    waiting.append(source)
        return [*sources]

    @property
    def _caller(self) -> str:
        return self._inside[-1] if self._inside else ""

    def _enter(self, path: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._inside.append(path)
        self.called.add(path)
        if path in self._paths and not self._norm:
            direct = [x for x in (*args, *kwargs.values()) if _is_float(x)]
            several = sum(map(_is_float, tree_leaves([args, kwargs]))) > 1
            if direct and several:
                self.widths_of_several.setdefault(path, self._of(direct[0]).width)
            elif direct:
                self._norm = _NormUnderWay(path, self._of(direct[0]))

    def _leave(self, path: str, module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        self._inside.pop()
        if self._norm and self._norm.path == path:
            x, self._norm = self._norm.x, None
            if not isinstance(result, Tensor):  # such as a norm that also returns scales
                return
            if x.axis is not None:  # the norm is not over the features
                x.users.append(x := Node("other", f"{x.label}, whose channels are not last", 0))
            node = Node("norm", path, result.shape[-1], [x], name=path, inside=self._caller)
            x.users.append(node)
            self.norms[path].append(node)
            self._set(result, node)

    def _of(self, x: Tensor) -> Node:
        """Return a tensor's node. If it has none, it is an input of the model and gets one."""
        if id(x) not in self._nodes:
            self._set(x, Node("other", "an input of the model", x.shape[-1] if x.ndim else 0))
        return self._nodes[id(x)]

    def _set(self, x: Tensor, node: Node) -> None:
        self._held.append(x)
        self._nodes[id(x)] = node

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        tensors = [
            x for x in tree_leaves([*args, *(kwargs or {}).values()]) if isinstance(x, Tensor)
        ]
        inputs = [self._of(x) for x in tensors] if not self._norm else []
        shapes = [x.shape for x in tensors]
        result = func(*args, **(kwargs or {}))
        if not self._norm:
            name = func.overloadpacket.__name__
            for out in tree_leaves(result):
                if isinstance(out, Tensor):
                    self._note(name, args, inputs, shapes, out)
        return result

    def _note(
        self, name: str, args: Any, inputs: list[Node], shapes: list[torch.Size], out: Tensor
    ) -> None:
        """Create the node of one result of an operation."""
        label = f"{name} in {self._caller}" if self._caller else name
        node = Node("other", label, out.shape[-1] if out.ndim else 0, inside=self._caller)
        names = [x.name for x in inputs if x.op == "weight"]
        if (transposed := _transposed(name, inputs, out)) is not None:
            self._set(out, transposed)
            return
        if (product := _product(name, inputs, shapes)) is not None:
            node.op, node.x, node.name = "product", product.x, product.weight.name
            node.bias, node.transposed = product.bias and product.bias.name, product.transposed
            product.x.users.append(node)
        elif _convolves(name, inputs, shapes):
            node.op, node.axis = "convolution", out.ndim - 1 - _CONVOLUTIONS[name]
            node.name, *bias = names
            node.bias = bias[0] if bias else None
            inputs[0].users.append(node)
        elif any(x.axis is not None for x in inputs):
            axis = _moved_axis(name, args, inputs[0].axis, shapes[0], out)
            if len(inputs) == 1 and axis is not None:
                node.op, node.passed = "move", inputs
                node.axis = axis if axis < out.ndim - 1 else None
            for x in inputs:
                x.users.append(node)
        else:
            node.op, passed = _classified(name, args, inputs, shapes, out)
            node.passed = passed
            node.name = inputs[0].name if node.op == "table" else ""
            for x in inputs:
                x.users.append(node)
        for weight_name in names:
            self.uses[weight_name].append(node)
        self._set(out, node)


def _is_float(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def _transposed(name: str, inputs: list[Node], out: Tensor) -> Node | None:
    """Return the node of a weight's transpose or alias, or None for other operations."""
    if len(inputs) != 1 or inputs[0].op != "weight":
        return None
    x = inputs[0]
    if name in _ALIASES:
        return x
    if name in _TURNS and out.ndim == 2:
        return Node("weight", x.label, out.shape[-1], name=x.name, transposed=not x.transposed)
    return None


def _product(name: str, inputs: list[Node], shapes: list[torch.Size]) -> _Product | None:
    """Return the parts of a matrix product with a weight, or None for other operations.

    The weight is [out, in] for `linear`, and [in, out] for `addmm` and `mm`.
    """
    if name == "linear":
        x, weight, *bias = inputs
        flip = False
    elif name in ("mm", "matmul") and len(inputs) == 2:
        (x, weight), bias, flip = inputs, [], True
    elif name == "addmm":
        first, x, weight = inputs
        bias, flip = [first], True
    else:
        return None
    if weight.op != "weight" or any(x.op != "weight" for x in bias) or x.op == "weight":
        return None
    if len(shapes[inputs.index(weight)]) != 2:
        return None
    return _Product(x, weight, bias[0] if bias else None, transposed=weight.transposed ^ flip)


def _convolves(name: str, inputs: list[Node], shapes: list[torch.Size]) -> bool:
    """Return whether an operation is a convolution whose weight and bias are parameters.

    Each output channel must read all input channels, because the channels of a grouped convolution
    have no common mean.
    """
    first, *rest = [x.op == "weight" for x in inputs] or [True]
    if name not in _CONVOLUTIONS or first or not all(rest):
        return False
    return shapes[0][-1 - _CONVOLUTIONS[name]] == shapes[1][1]


def _moved_axis(
    name: str, args: Any, axis: int | None, shape: torch.Size, out: Tensor
) -> int | None:
    """Return where an operation moves an axis, or None if it does more than move axes."""
    if axis is None:
        return None
    count = len(shape)
    if name == "transpose":
        first, second = args[1] % count, args[2] % count
        return {first: second, second: first}.get(axis, axis)
    if name == "permute":
        return [old % count for old in args[1]].index(axis)
    if name in _RESHAPES and shape[: axis + 1] == out.shape[: axis + 1]:
        return axis
    return axis if name in _SAME and shape == out.shape else None


def _classified(
    name: str, args: Any, inputs: list[Node], shapes: list[torch.Size], out: Tensor
) -> tuple[Op, list[Node]]:
    """Return the kind of an operation, and the inputs whose features it passes on."""
    width, name = (out.shape[-1] if out.ndim else 0), name.removesuffix("_") or name
    same_width = [n for n, shape in enumerate(shapes) if len(shape) and shape[-1] == width]
    if name == "embedding" and inputs[0].op == "weight":
        return "table", []
    if name in _MOVES and _keeps_features(name, args, shapes, out):
        return "move", [inputs[n] for n in same_width]
    if name in ("pad", "constant_pad_nd") and _pads_positions(args):
        return "scale", inputs
    if name in ("add", "sub") and len(same_width) == len(inputs) == 2:
        return "sum", inputs
    if name in ("mul", "div") and same_width[:1] and width > 1:
        rest = [n for n in range(len(inputs)) if n != same_width[0]]
        per_position = all(len(shapes[n]) == 0 or shapes[n][-1] == 1 for n in rest)
        if per_position and (name == "mul" or same_width[0] == 0):
            return "scale", [inputs[same_width[0]]]
    return "other", []


def _keeps_features(name: str, args: Any, shapes: list[torch.Size], out: Tensor) -> bool:
    """Return whether the last axis of an operation's inputs is the last axis of its result."""
    count = len(shapes[0])
    if not count or not out.ndim or shapes[0][-1] != out.shape[-1]:
        return False
    if name == "transpose":
        return count - 1 not in (args[1] % count, args[2] % count)
    if name == "permute":
        return args[1][-1] % count == count - 1
    if name in ("cat", "stack", "select", "narrow", "index_select", "unbind", "unsqueeze"):
        axis = args[1] if len(args) > 1 else 0
        return axis % out.ndim != out.ndim - 1 if name != "select" else axis % count != count - 1
    if name == "mean":  # over positions
        axes = args[1] if len(args) > 1 else None
        return bool(axes) and all(axis % count != count - 1 for axis in axes)
    if name == "index":
        return len(args[1]) < count or args[1][-1] is None
    return True


def _pads_positions(args: Any) -> bool:
    """Return whether an operation only adds positions whose features are all 0."""
    mode = [x for x in args[2:] if isinstance(x, str)]
    value = [x for x in args[2:] if isinstance(x, int | float)]
    constant = mode in ([], ["constant"]) and not any(value)
    return constant and len(args[1]) > 1 and not any(args[1][:2])
