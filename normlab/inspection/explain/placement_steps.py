"""`normlab explain placement=pre post`: shows how norms, sub-layers and additions are wired.

The text is the summary of the placement's module, the equation is the first indented paragraph of
its docstring, and the drawing is in its class. The order of the steps is found by running a layer,
and comparing the input of each norm with the input of the residual connection and with the
sub-layer's output. If it is neither, the norm follows the addition.
"""

import sys
from collections.abc import Sequence
from functools import partial
from textwrap import dedent, indent
from types import ModuleType
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.config.instantiation import instantiate
from normlab.config.registry import Option, option_settings
from normlab.docstrings import summary
from normlab.findings.finding import AnswerTable
from normlab.inspection.explain.section import OptionExplanation, Section
from normlab.norms.base import NoNorm, Norm
from normlab.norms.make import make_norm
from normlab.norms.tokens import Tokens
from normlab.placements.base import Norms, Place, Placement, Residual

WIDTH = 4
SUBLAYERS = {"self": "attention", "ffn": "feed-forward"}
ARROW = " -> "
_MARGIN = " " * 8  # before each line of a drawing


def wiring(option: Option) -> OptionExplanation:
    """Explain a placement: its equation, its drawing, and the steps of an encoder layer."""
    node = option_settings("placement", option.name, "placement")
    placement = instantiate(node, "placement", Placement, dropout=0.0)
    module = sys.modules[type(placement).__module__]
    parts = [_equation(module), placement.drawing]
    drawing = indent("\n\n".join(map(_dedented, filter(None, parts))), _MARGIN).splitlines()
    text = summary(module)
    norms = Norms([("*", partial(make_norm, "ln"))])
    steps = steps_of_layer(placement, norms)
    final = not isinstance(placement.final(norms, WIDTH, "encoder"), NoNorm)
    properties = {
        "an encoder layer": ARROW.join(steps) or "more than one stream, see the drawing",
        "after the last layer": "a norm" if final else "no norm",
    }
    sections = [Section(f"{option.name}: {option.description}", text, drawing)]
    return OptionExplanation(option.name, sections, properties)


def _equation(module: ModuleType) -> str:
    """Return the first indented paragraph of a module's docstring, or "" if there is none."""
    paragraphs = (module.__doc__ or "").split("\n\n")
    return next((each for each in paragraphs if each.startswith("    ")), "")


def _dedented(text: str) -> str:
    return dedent(text).strip("\n")


def compared(explanations: Sequence[OptionExplanation]) -> Section:
    """Return a table of the steps of placements, with one row per placement."""
    columns = ("placement", *explanations[0].properties)
    rows = [(each.name, *each.properties.values()) for each in explanations]
    text = (
        "In the equations, x is the residual stream, f the sub-layer and y the new stream. The "
        "order of the steps is found by running a layer with attention and a feed-forward layer."
    )
    return Section("Steps", text, table=AnswerTable(columns, rows))


def steps_of_layer(placement: Placement, norms: Norms) -> list[str]:
    """Return the steps of the last of two layers, such as `norm`, `attention`, `add`.

    The list is empty if the placement has more than one residual stream.
    """
    start = Place(stack="encoder", layer=1, layers=2, sublayer="self")
    places = [start, start.at("ffn")]
    residuals = placement.residuals(norms, WIDTH, places)
    if any(each.streams > 1 for each in residuals):
        return []
    x = torch.randn(1, 3, WIDTH, generator=torch.Generator().manual_seed(1))
    steps: list[str] = []
    for residual, name in zip(residuals, SUBLAYERS.values(), strict=True):
        passed = through_sublayer(residual, x, name)
        steps += passed.steps
        x = passed.output
    return steps


class SublayerPass(NamedTuple):
    """The steps of a residual connection around a sub-layer in order, and its output."""

    steps: list[str]
    output: Float[Tensor, "B P D"]


def through_sublayer(residual: Residual, x: Float[Tensor, "B P D"], name: str) -> SublayerPass:
    """Run a residual connection around the sub-layer `name`, and record its steps."""
    steps: list[str] = []
    branch_output: list[Tensor] = []

    def branch(y: Tensor) -> Tensor:
        steps.append(name)
        branch_output.append(2 * y.roll(1, -1))
        return branch_output[-1]

    def note(norm: Norm, args: tuple[Any, ...]) -> None:
        before = any(torch.equal(args[0], each) for each in (x, *branch_output))
        steps.extend(["norm"] if before else ["add", "norm"])

    handles = [
        each.register_forward_pre_hook(note)
        for each in residual.modules()
        if isinstance(each, Norm) and not isinstance(each, NoNorm)
    ]
    with torch.no_grad():
        output = residual(x, Tokens(torch.ones(x.shape[:2], dtype=torch.bool)), branch)
    for handle in handles:
        handle.remove()
    return SublayerPass(steps if "add" in steps else [*steps, "add"], output)
