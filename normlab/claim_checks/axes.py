"""Checks of what the articles' norms pool over in their worked example, code and table."""

from torch import nn

from normlab.claim_checks.check import ROUNDED_TO_ZERO, check, close, finding
from normlab.claim_checks.code import error_of
from normlab.claim_checks.inputs import norm_of_example_width
from normlab.claims.evidence import CheckFinding
from normlab.inspection.examples.articles import SHAPE, example_tensor
from normlab.inspection.norm.pooling import dependence, pooled_cells
from normlab.inspection.norm.worked_example import WorkedGroup, worked_groups


def _first_group(name: str) -> WorkedGroup:
    norm = norm_of_example_width(name)
    return worked_groups(norm, pooled_cells(norm, dependence(norm)))[0]


@check("axes.worked")
def worked() -> list[CheckFinding]:
    """What statistics do ln and two kinds of bn compute on the articles' example tensor?"""
    expected = {
        "bn_sample": ("position 0, mean([1,2,3,4,\u22121,0,1,2])", 1.5, 2.25),
        "ln": ("sample 1, token 1, [1,2,3,4]", 2.5, 1.25),
        "bn": ("feature 0 over all six tokens", 4.0, 35 / 3),
    }
    findings = []
    for name, (what, mean, var) in expected.items():
        group = _first_group(name)
        assert group.line is not None
        center, divisor = group.line
        statement = f"{name}: {what} = {mean:g}, variance {var:.4g}"
        answer = (
            f"by hand mean {group.mean:.4g}, variance {group.var:.4g}; the module subtracts "
            f"{center:.4g} and divides by {divisor:.4g}"
        )
        holds = close((group.mean, group.var, center), (mean, var, mean))
        findings.append(
            finding(name, statement, answer, holds=holds, mean=group.mean, var=group.var)
        )
    return findings


@check("axes.positions")
def positions() -> list[CheckFinding]:
    """What does the articles' batch norm pool over in their code, example and table?"""
    x = example_tensor().permute(0, 2, 1)
    error = error_of(nn.BatchNorm1d(SHAPE[1], affine=False).double(), x)
    y = nn.BatchNorm1d(SHAPE[2], affine=False).double()(x)
    same_position = bool(
        y.mean(0).abs().max() < ROUNDED_TO_ZERO
    )  # otherwise it also pools over positions
    axes = "the batch" if same_position else "batch and positions"
    example, table, papers = (
        len(_first_group(name).values) for name in ("bn_sample", "bn_position", "bn")
    )
    means = [_first_group(name).mean for name in ("bn_sample", "bn_position")]
    ran = f"raises: {error}" if error else "it runs"
    pooled = (
        f"the example pools {example} values (mean {means[0]:g}), the table's BN {table} "
        f"(mean {means[1]:g})"
    )
    code = f"article 1's code runs: BatchNorm1d(seq_len={SHAPE[1]})(x.permute(0, 2, 1))"
    as_its_table = (
        "article 1's worked example pools what its table says: one feature over the batch"
    )
    as_papers = "batch norm as in the papers pools the same position of different samples"
    every = f"it pools {papers} values, over {axes}"
    return [
        finding("article 1's code", code, ran, holds=not error),
        finding("its worked example", as_its_table, pooled, holds=example == table),
        finding("batch norm as in the papers", as_papers, every, holds=same_position),
    ]
