"""What does the norm pool its statistics over, and what does a token see of the others?

By trying, on a block of the documents' size: change one value, see which outputs move.
"""

from normlab.card.finding import Finding
from normlab.card.subject import Examined
from normlab.config import to_dict
from normlab.explain.block import AXES
from normlab.explain.dependence import Sees, dependence, trained
from normlab.explain.subject import subject
from normlab.norms.base import Norm, RunningNorm
from normlab.registry import options

QUESTION = "What does the norm pool over, and what does a token's output depend on?"
COLUMNS = ("", "depends, besides its own value, on")


def examine(examined: Examined) -> Finding:
    """Name the axes, and try what an output depends on in training and in evaluation."""
    config = to_dict(examined.config("translation"))
    name = config["choices"]["norm"]
    on_table = subject(next(option for option in options("norm") if option.name == name))
    values = {
        key: value
        for key, value in config["norm"].items()
        if key != "_target_" and key not in on_table.changed
    }
    norm = on_table.make(**values)
    axes = [axis for axis in AXES if axis in norm.pools]
    seen = {
        "in training": _sees(norm, evaluated=False),
        "in evaluation": _sees(norm, evaluated=True),
    }
    figures = {
        "pools": axes,
        "sees": seen,
        "statistics_of_its_own": isinstance(norm, RunningNorm),
        "batch_independent": norm.batch_independent,
        "incremental": norm.incremental,
        "parameters": sum(parameter.numel() for parameter in norm.parameters()),
    }
    pooled = ", ".join(axes) or "nothing"
    kept = "; keeps statistics between batches" if figures["statistics_of_its_own"] else ""
    answer = f"pools over {pooled}{kept}; in training an output depends on {seen['in training']}"
    cells = {"pools": ", ".join(axes) or "-"}
    return Finding(QUESTION, answer, figures, COLUMNS, list(seen.items()), cells)


def _sees(norm: Norm, *, evaluated: bool) -> str:
    try:
        return Sees.of(dependence(trained(norm) if evaluated else norm)).in_words()
    except (ValueError, RuntimeError) as error:
        return f"(cannot be tried on 2 x 3 x 4 values: {str(error).splitlines()[0]})"
