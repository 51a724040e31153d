"""Checks that decide parts of claims in seconds by applying norms to small, fixed inputs.

A claim's `computed:` names a check, such as `padding.pollutes`. Seeds are fixed and everything is
computed in float64, so the results are the same on every machine.
"""

import copy
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.claims.evidence import Evidence
from normlab.config.registry import options
from normlab.inspect.explain import SHAPE, Group, dependence, document, pooled_cells, work
from normlab.inspect.model import movement, percent
from normlab.inspect.question import question, questions
from normlab.inspect.subject import on_table, one_by_one, run, trained
from normlab.norms.base import Norm
from normlab.norms.batch import BatchNorm
from normlab.norms.make import make_norm

SEED, WIDTH, LENGTH = 1, 64, 12


def compute(name: str) -> list[Evidence]:
    """Run a check and return its evidence; for an unknown name, ValueError lists all checks."""
    (found,) = questions("claim", names=[name])
    return found.ask()


def piece(asked: str, answer: str, *, holds: bool, **numbers: float) -> Evidence:
    """Return an answer as evidence: for the claim if the answer `holds`, against it otherwise."""
    return Evidence(asked, answer, "supports" if holds else "contradicts", numbers)


def close(found: Sequence[float], wanted: Sequence[float]) -> bool:
    """Return whether all values are within 1e-6 of the expected ones."""
    return all(abs(a - b) < 1e-6 for a, b in zip(found, wanted, strict=True))


def changes(share: float) -> bool:
    """Return whether a relative change exceeds float64 rounding."""
    return share > 1e-9


def change_piece(asked: str, share: float, *, expected: bool = True, because: str = "") -> Evidence:
    """Return evidence on whether an output changes, given its relative change, `share`."""
    answer = f"changes by {percent(share)}" if changes(share) else "identical"
    return piece(asked, answer + because, holds=changes(share) == expected, moved=share)


def new_norm(name: str, **values: Any) -> Norm:
    """Build an option's norm in float64 and training mode."""
    return make_norm(name, WIDTH, **values).double().train()


def draw_tokens(*shape: int, seed: int = SEED) -> Float[Tensor, "... D"]:
    """Draw normal values; each feature has its own mean and spread, whatever the seed."""
    draw = torch.Generator().manual_seed(seed)
    features = torch.Generator().manual_seed(SEED)
    mean, spread = torch.randn(2, WIDTH, generator=features, dtype=torch.float64)
    values = torch.randn(*shape, WIDTH, generator=draw, dtype=torch.float64)
    return values * (1 + spread.abs()) + 2 * mean


def trained_norm(name: str, **values: Any) -> Norm:
    """Return a norm in eval mode that has seen 60 batches of 32 sequences of 16 tokens."""
    return trained(new_norm(name, **values), *draw_tokens(60, 32, 16, seed=SEED + 1))


def option(name: str) -> Norm:
    """Build an option's norm at the width of the articles' example tensor."""
    return on_table(next(each for each in options("norm") if each.name == name)).make()


def _first_group(name: str) -> Group:
    norm = option(name)
    return work(norm, pooled_cells(norm, dependence(norm)))[0]


@question("axes.worked", of="claim")
def worked() -> list[Evidence]:
    """What statistics do ln and two kinds of bn compute on the articles' example tensor?"""
    wanted = {
        "bn_sample": ("position 0, mean([1,2,3,4,-1,0,1,2])", 1.5, 2.25),
        "ln": ("sample 1, token 1, [1,2,3,4]", 2.5, 1.25),
        "bn": ("feature 0 over all six tokens", 4.0, 35 / 3),
    }
    pieces = []
    for name, (what, mean, var) in wanted.items():
        group = _first_group(name)
        assert group.line is not None
        center, divisor = group.line
        asked = f"{name}: {what} = {mean:g}, variance {var:.4g}"
        answer = (
            f"by hand mean {group.mean:.4g}, variance {group.var:.4g}; the module subtracts "
            f"{center:.4g} and divides by {divisor:.4g}"
        )
        holds = close((group.mean, group.var, center), (mean, var, mean))
        pieces.append(piece(asked, answer, holds=holds, mean=group.mean, var=group.var))
    return pieces


@question("axes.positions", of="claim")
def positions() -> list[Evidence]:
    """What does the articles' batch norm pool over in their code, example and table?"""
    x = document().permute(0, 2, 1)
    error = ""
    try:
        nn.BatchNorm1d(SHAPE[1], affine=False).double()(x)
    except (RuntimeError, ValueError) as raised:
        error = str(raised).splitlines()[0]
    y = nn.BatchNorm1d(SHAPE[2], affine=False).double()(x)
    same_position = bool(y.mean(0).abs().max() < 1e-6)  # else it also pools over positions
    axes = "batch" if same_position else "batch, position"
    example, table, papers = (
        len(_first_group(name).values) for name in ("bn_sample", "bn_position", "bn")
    )
    means = [_first_group(name).mean for name in ("bn_sample", "bn_position")]
    ran = f"raises: {error}" if error else "it runs"
    pooled = (
        f"the example pools {example} values of all features (mean {means[0]:g}), the table's BN "
        f"{table} of one (mean {means[1]:g})"
    )
    code = f"article 1's code runs: BatchNorm1d(seq_len={SHAPE[1]})(x.permute(0, 2, 1))"
    asked = "its worked example pools what its table says: one feature over the batch"
    as_papers = "batch norm as the papers have it pools the same position of different samples"
    every = f"it pools {papers} values, {axes}: every position"
    return [
        piece(code, ran, holds=not error),
        piece(asked, pooled, holds=example == table),
        piece(as_papers, every, holds=same_position),
    ]


@question("batch.alone", of="claim")
def alone() -> list[Evidence]:
    """In eval, what does bn do with a sentence alone, or with one longer than any in training?"""
    x, longer = draw_tokens(8, 16), draw_tokens(2, 40)
    bn, rows = trained_norm("bn"), trained_norm("bn_position", num_positions=32)
    by_batch = trained_norm("bn", eval_stats="batch")
    single, own = (movement(run(norm, x[:1]), run(norm, x)[:1]) for norm in (bn, by_batch))
    far = movement(run(bn, longer)[:, 16:], run(bn, longer[:, 16:]))
    refusal = "it takes them"
    try:
        run(rows, longer)
    except ValueError:  # the error message may change, but not the published finding
        kind = type(rows).__name__
        refusal = f"{kind} keeps statistics for num_positions=32 positions, and position 39 came"
    alone = "a sentence alone has another output than in a batch"
    one_row = ": one row of statistics serves all positions"
    beyond = "bn: positions beyond the longest of training are treated differently"
    own_reading = "bn_position, the articles' own reading: it has no statistics for such positions"
    return [
        change_piece(f"bn with running statistics: {alone}", single),
        change_piece(f"bn with the batch's own statistics: {alone}", own),
        change_piece(beyond, far, because=one_row),
        piece(own_reading, refusal, holds="num_positions" in refusal),
    ]


@question("batch.generation", of="claim")
def generation() -> list[Evidence]:
    """Does decoding token by token give a different output than the whole sentence?"""
    x = draw_tokens(1, 16)
    norms = {
        "bn with running statistics": trained_norm("bn"),
        "bn with the batch's own statistics": trained_norm("bn", eval_stats="batch"),
    }
    text = "decoding token by token gives another output than the whole sentence"
    return [
        change_piece(f"{name}: {text}", movement(one_by_one(norm, x), run(norm, x)))
        for name, norm in norms.items()
    ]


@question("batch.ranks", of="claim")
def ranks() -> list[Evidence]:
    """Does splitting a batch over two processes change the output?"""
    x = draw_tokens(16, LENGTH)
    whole = {name: run(new_norm(name), x) for name in ("bn", "ln")}
    moved = {
        name: movement(torch.cat([run(new_norm(name), half) for half in x.chunk(2)]), y)
        for name, y in whole.items()
    }
    half = "half of the batch on each of two processes"
    both = "bn: it does so with statistics summed over processes, too (norm.sync=true)"
    return [
        change_piece(f"bn: {half} changes the output (norm.sync=false)", moved["bn"]),
        change_piece(both, movement(_in_step(x), whole["bn"])),
        change_piece(f"ln: {half} does not change the output", moved["ln"], expected=False),
    ]


def _in_step(x: Float[Tensor, "B P D"]) -> Float[Tensor, "B P D"]:
    """Normalize each half of a batch in its own thread, summing statistics over both halves."""
    together = threading.Barrier(2)
    sums: dict[int, Tensor] = {}

    def summed(rank: int, table: Tensor) -> Tensor:
        sums[rank] = table
        together.wait()
        total = sums[0] + sums[1]
        together.wait()
        return total

    def half(rank: int) -> Tensor:
        norm = new_norm("bn")
        assert isinstance(norm, BatchNorm)
        norm.summed = partial(summed, rank)
        return run(norm, x.chunk(2)[rank])

    with ThreadPoolExecutor(2) as pool:
        return torch.cat(list(pool.map(half, (0, 1))))


@question("modes.mismatch", of="claim")
def mismatch() -> list[Evidence]:
    """Does the same batch give a different output in eval than in training?"""

    def gap(name: str, sequences: int) -> float:
        norm, x = trained_norm(name), draw_tokens(sequences, 16)
        return movement(run(norm, x), run(copy.deepcopy(norm).train(), x))

    few, many, layer = gap("bn", 2), gap("bn", 256), gap("ln", 2)
    asked = "bn: the same batch has another output in eval than in training"
    answer = f"changes by {percent(few)} for 32 tokens, by {percent(many)} for 4,096"
    return [
        piece(asked, answer, holds=changes(few), few=few, many=many),
        change_piece("ln: the same batch has the same output in both", layer, expected=False),
    ]


@question("modes.agreement", of="claim")
def agreement() -> list[Evidence]:
    """Is layer norm bit-identical in training and eval, and for a sentence alone or in a batch?"""
    norm, x = new_norm("ln"), draw_tokens(8, 16)
    training = run(norm, x)
    found = {
        "training and inference are the same": [run(copy.deepcopy(norm).eval(), x)],
        "a batch of one is the same as a batch of eight": [run(norm, each[None]) for each in x],
    }
    bits = {True: "equal bit by bit", False: "not equal"}
    return [
        piece(f"ln: {text}", bits[same := torch.equal(training, torch.cat(parts))], holds=same)
        for text, parts in found.items()
    ]


@question("modes.buffers", of="claim")
def buffers() -> list[Evidence]:
    """Which buffers do layer norm and batch norm keep, and does eval differ from training?"""
    x, modes = draw_tokens(4, 8), {True: "two modes", False: "one mode"}
    kept, two = {}, {}
    for name in ("ln", "bn"):
        norm = new_norm(name)
        kept[name] = ", ".join(n for n, _ in norm.named_buffers() if n in norm.state_dict())
        two[name] = not torch.equal(run(norm, x), run(copy.deepcopy(norm).eval(), x))
    return [
        piece("ln keeps no buffers", kept["ln"] or "none", holds=not kept["ln"]),
        piece("bn keeps running statistics", kept["bn"] or "none", holds=bool(kept["bn"])),
        piece("ln has one mode", modes[two["ln"]], holds=not two["ln"]),
        piece("bn switches between two modes", modes[two["bn"]], holds=two["bn"]),
    ]


@question("modes.memory", of="claim")
def memory() -> list[Evidence]:
    """How many values does batch norm store with one row per position, or one row for all?"""

    def size(name: str, **values: Any) -> int:
        return sum(buffer.numel() for _, buffer in new_norm(name, **values).named_buffers())

    sizes = {count: size("bn_position", num_positions=count) for count in (64, 128, 256)}
    one = size("bn")
    listed = ", ".join(f"{each:,} of {count} positions" for count, each in sizes.items())
    holds = len({each / count for count, each in sizes.items()}) == 1 and one < min(sizes.values())
    asked = "bn_position: what it keeps grows in proportion to the longest sequence"
    answer = f"values of {WIDTH} features: {listed}; bn keeps {one:,} whatever the length"
    numbers = {f"of_{count}": float(each) for count, each in sizes.items()}
    return [piece(asked, answer, holds=holds, **numbers)]


@question("order.kept", of="claim")
def order_kept() -> list[Evidence]:
    """Does a norm preserve the order of values within a token, and within a feature?"""
    x = draw_tokens(8, 16)
    generator = torch.Generator().manual_seed(SEED)
    weighted = new_norm("ln")
    weighted.weight.data.copy_(0.5 + torch.rand(WIDTH, generator=generator, dtype=torch.float64))
    asked = (
        ("ln keeps the order of a token's features", new_norm("ln"), False, True),
        ("bn keeps the order of a feature's samples", new_norm("bn"), True, True),
        ("ln does not keep the order of a feature's samples", new_norm("ln"), True, False),
        ("bn does not keep the order of a token's features", new_norm("bn"), False, False),
        ("ln keeps it with learned weights too (0.5 to 1.5 here)", weighted, False, True),
    )
    pieces = []
    for text, norm, across, exactly in asked:
        before, after = (table.flatten(0, 1) for table in (x, run(norm, x)))
        found = rank_correlation(*(before.T, after.T) if across else (before, after))
        answer = f"rank correlation {found['rho']:.4g}, exact in {found['exact']:.0%}"
        pieces.append(piece(text, answer, holds=(found["exact"] == 1) == exactly, **found))
    return pieces


def rank_correlation(x: Float[Tensor, "N M"], y: Float[Tensor, "N M"]) -> dict[str, float]:
    """Return Spearman's `rho`, averaged over rows, and the share of rows whose order is the same.

    Without ties, rho = 1 - 6 sum d^2 / (M (M^2 - 1)), where d are the differences in rank.
    """
    first, second = (table.argsort(-1).argsort(-1).double() for table in (x, y))
    size, square = x.shape[-1], (first - second).square().sum(-1)
    rho = 1 - 6 * square / (size * (size**2 - 1))
    return {"rho": float(rho.mean()), "exact": float((square == 0).double().mean())}


@question("sampling.variance_of_the_mean", of="claim")
def variance_of_the_mean() -> list[Evidence]:
    """Is Var(mean) = sigma^2 / N, and does N count sentences or tokens?

    Sets are drawn from single values, from sentences of 16 independent tokens, and from sentences
    of 16 tokens with a correlation of 0.1.
    """
    length, correlation, near = 16, 0.1, 0.1
    single, independent, correlated = (
        variances_of_means(*drawn) for drawn in ((1, 0.0), (length, 0.0), (length, correlation))
    )
    slope = float(np.polyfit(np.log([*single]), np.log([*single.values()]), 1)[0])
    ratio = single[8] / single[256]
    tokens, expected = 32 * length, 1 + (length - 1) * correlation
    per_sentence, design = 1 / (32 * independent[tokens]), tokens * correlated[tokens]
    by_one = "one value per sample: the variance of the mean falls as 1/N, 32 times from 8 to 256"
    falls = f"as N^{slope:.2f}, {ratio:.3g} times"
    by_batch = f"N is the batch size, for sentences of {length} tokens too"
    too_large = (
        f"sigma^2 / 32 is {per_sentence:.3g} times too large for 32 sentences of independent "
        "tokens: N counts tokens"
    )
    by_token = f"N counts tokens also where two of a sentence correlate by {correlation}"
    too_small = (
        f"sigma^2 / {tokens} is {design:.2f} times too small: {tokens} tokens equal "
        f"{1 / correlated[tokens]:.0f} independent ones (1 + {length - 1} x {correlation} = "
        f"{expected:g} expected)"
    )
    holds = [abs(value - 1) < near for value in (-slope, per_sentence, design)]
    return [
        piece(by_one, falls, holds=holds[0], slope=slope, ratio=ratio),
        piece(by_batch, too_large, holds=holds[1], per_sentence=per_sentence),
        piece(by_token, too_small, holds=holds[2], design_effect=design),
    ]


def variances_of_means(length: int, correlation: float) -> dict[int, float]:
    """Return Var(mean) / sigma^2 by the number of tokens, for sets of 8 to 256 sentences.

    Sets are drawn without replacement from 2048 sentences with correlated tokens. Dividing the
    variances by 1 - N / 2048 corrects for this finite population (Cochran 1977, section 2.6).
    """
    samples, sizes, sets = 2048, (8, 16, 32, 64, 128, 256), 256
    generator = np.random.default_rng(SEED)
    sentence = generator.standard_normal((samples, 1, WIDTH))
    token = generator.standard_normal((samples, length, WIDTH))
    values = np.sqrt(correlation) * sentence + np.sqrt(1 - correlation) * token
    orders = np.stack([generator.permutation(samples)[: sizes[-1]] for _ in range(sets)])
    sums, number = values.sum(1), samples * length
    squares = np.square(values.reshape(number, WIDTH)).sum(0)
    sigma2 = float((squares / number - np.square(sums.sum(0) / number)).sum())
    found = {}
    for size in sizes:
        member = np.zeros((sets, samples))
        np.put_along_axis(member, orders[:, :size], 1, axis=1)
        means = member @ sums / (size * length)
        finite = 1 - size / samples
        found[size * length] = float(means.var(0, ddof=1).sum()) / finite / sigma2
    return found
