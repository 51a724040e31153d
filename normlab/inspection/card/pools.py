"""The question about what a norm pools over."""

from normlab.config.registry import options
from normlab.config.run_config import to_dict
from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.inspection.card.examined_norm import ExaminedNorm
from normlab.inspection.explain.norm_text import influences_in_words
from normlab.inspection.norm.example_norm import example_norm
from normlab.inspection.norm.pooling import dependence, dependence_in_eval, influences
from normlab.inspection.norm.worked_example import at_shown_step
from normlab.norms.axes import axes_in_words, in_order
from normlab.norms.base import Norm
from normlab.norms.running import RunningNorm


@question("pools", of="card")
def pools(examined: ExaminedNorm) -> Finding:
    """What does the norm pool over, and what does a token's output depend on?"""
    norm = _at_the_width_of_the_example(examined)
    in_training = influences_in_words(influences(dependence(norm)))
    in_eval = influences_in_words(influences(dependence_in_eval(norm)))
    by_mode = {"in training": in_training, "in evaluation": in_eval}
    axes = axes_in_words(norm.pools)
    memory = "; keeps statistics between batches" if isinstance(norm, RunningNorm) else ""
    return Finding(
        f"pools over {axes}{memory}; in training an output depends on {in_training}",
        {
            "pools": in_order(norm.pools),
            "sees": by_mode,
            "parameters": sum(parameter.numel() for parameter in norm.parameters()),
        },
        AnswerTable(("", "depends, besides its own value, on"), list(by_mode.items())),
        board={"pools": axes if norm.pools else "-"},
    )


def _at_the_width_of_the_example(examined: ExaminedNorm) -> Norm:
    """Return the card's norm at a width of 4, without settings that do not fit this width.

    It is at the step at which `normlab explain` shows it.
    """
    config = to_dict(examined.config("translation"))
    name = config["choices"]["norm"]
    example = example_norm(next(option for option in options("norm") if option.name == name))
    left_out = {"option", *example.changed}
    settings = {k: v for k, v in config["norm"].items() if k not in left_out}
    return at_shown_step(example, **settings).make(**settings)
