"""Decides claims 11 and 37: what the documents' own tensor is pooled over, and its statistics."""

from normlab.checks._pieces import piece
from normlab.claims.evidence import Evidence
from normlab.explain.block import axes_in_words
from normlab.explain.dependence import dependence, pooled_cells
from normlab.explain.documents import attempts
from normlab.explain.subject import subject
from normlab.explain.worked import Group, work
from normlab.registry import options


def worked() -> list[Evidence]:
    """Send the documents' tensor through the norms, and read the statistics off what came out."""
    wanted = {
        "bn_sample": ("position 0, mean([1,2,3,4,-1,0,1,2])", 1.5, 2.25),
        "ln": ("sample 1, token 1, [1,2,3,4]", 2.5, 1.25),
        "bn": ("feature 0 over all six tokens", 4.0, 35 / 3),
    }
    pieces = []
    for name, (what, mean, var) in wanted.items():
        group = _first_group(name)
        assert group.line is not None
        pieces.append(
            piece(
                f"{name}: {what} = {mean:g}, variance {var:.4g}",
                f"by hand mean {group.mean:.4g}, variance {group.var:.4g}; the module subtracts "
                f"{group.line.center:.4g} and divides by {group.line.divisor:.4g}",
                holds=all(
                    abs(a - b) < 1e-6
                    for a, b in ((group.mean, mean), (group.var, var), (group.line.center, mean))
                ),
                mean=group.mean,
                var=group.var,
            )
        )
    return pieces


def positions() -> list[Evidence]:
    """Ask what the documents' batch norm pools: in their code, their example and their table."""
    first, _, third = attempts()
    example, table, papers = (_first_group(name) for name in ("bn_sample", "bn_position", "bn"))
    assert third.axes is not None
    return [
        piece(
            f"document 000's code runs: {first.call}",
            f"raises: {first.error}" if first.error else "it runs",
            holds=first.error is None,
        ),
        piece(
            "its worked example pools what its table says, a feature over the batch",
            f"the example pools {len(example.values)} values of all features (mean "
            f"{example.mean:g}), the table's BN {len(table.values)} of one (mean {table.mean:g})",
            holds=len(example.values) == len(table.values),
        ),
        piece(
            "batch norm as the papers have it pools the same position of different samples",
            f"it pools {len(papers.values)} values, {axes_in_words(third.axes)}: every position",
            holds=third.axes == {"batch"},
        ),
    ]


def _first_group(name: str) -> Group:
    (option,) = [option for option in options("norm") if option.name == name]
    norm = subject(option).make()
    return work(norm, pooled_cells(norm, dependence(norm))).groups[0]
