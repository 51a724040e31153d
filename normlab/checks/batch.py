"""Decides what the rest of a batch does to a sentence: claims 13, 16, 17, 33 and 41.

Batch norm pools over the batch in training and takes running statistics in eval; most of what the
documents say of it is true of the first and not of the second.
"""

import copy
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.checks._pieces import SEED, moves, new, piece, said, tokens, trained
from normlab.claims.evidence import Evidence
from normlab.explain.subject import run
from normlab.health.batch_mates import attention_weights, total_variation
from normlab.health.movement import deviation, movement, percent
from normlab.norms.base import Norm, Stream
from normlab.norms.batch import BatchNorm
from normlab.norms.moments import Pooling

_WIDTH = 64
_SETS = 50
_MATES = 31
_LENGTH = 12


def mates() -> list[Evidence]:
    """Put one sentence among fifty sets of 31 others, and let it attend to itself."""
    pool = tokens(_SETS * _MATES + 1, _LENGTH, _WIDTH)
    sentence, others = pool[:1], pool[1:].reshape(_SETS, _MATES, _LENGTH, _WIDTH)
    norms = {
        "bn in training": new("bn", _WIDTH),
        "ln": new("ln", _WIDTH),
        "bn in eval": trained(new("bn", _WIDTH)),
    }
    found: dict[str, tuple[float, float]] = {}
    for name, norm in norms.items():
        outs = [run(copy.deepcopy(norm), torch.cat([sentence, set_]))[0] for set_ in others]
        found[name] = deviation(torch.stack(outs)), total_variation([_attend(y) for y in outs])
    asked = {
        "bn in training": "bn in training: the sentence and its attention change with its company",
        "ln": "ln: they do not",
        "bn in eval": "bn in eval, with running statistics: they change as well",
    }
    return [
        piece(
            asked[name],
            f"{said(values)}, and {percent(weights)} of the attention goes elsewhere"
            if moves(values)
            else said(values),
            holds=moves(values) == (name != "ln"),
            values=values,
            attention=weights,
        )
        for name, (values, weights) in found.items()
    ]


def _attend(y: Float[Tensor, "P D"]) -> Float[Tensor, "1 P P"]:
    """Return where the tokens look by random queries and keys."""
    generator = torch.Generator().manual_seed(SEED)
    maps = torch.randn(2, _WIDTH, _WIDTH, generator=generator, dtype=torch.float64)
    query, key = y @ maps / math.sqrt(_WIDTH)
    return attention_weights(query[None, None], key[None, None], None)


def alone() -> list[Evidence]:
    """Give norms in eval one sentence alone, and one longer than any in training."""
    x = tokens(8, 16, _WIDTH)
    longer = tokens(2, 40, _WIDTH)
    bn, rows = trained(new("bn", _WIDTH)), trained(new("bn_position", _WIDTH, num_positions=32))
    single = movement(run(bn, x[:1]), run(bn, x)[:1])
    far = movement(run(bn, longer)[:, 16:], run(bn, longer[:, 16:]))
    try:
        run(rows, longer)
        refusal = "it takes them"
    except ValueError as error:
        refusal = str(error).split(":")[0]
    by_batch = trained(new("bn", _WIDTH, eval_stats="batch"))
    own = movement(run(by_batch, x[:1]), run(by_batch, x)[:1])
    return [
        piece(
            "bn with running statistics: a sentence alone comes out otherwise than in a batch",
            said(single),
            holds=moves(single),
            moved=single,
        ),
        piece(
            "bn with the batch's own statistics: it does",
            said(own),
            holds=moves(own),
            moved=own,
        ),
        piece(
            "bn: positions beyond the longest of training are treated otherwise",
            f"{said(far)}: one row of statistics serves all positions",
            holds=moves(far),
            moved=far,
        ),
        piece(
            "bn_position, the documents' own reading: it has no statistics for such positions",
            refusal,
            holds="num_positions" in refusal,
        ),
    ]


def generation() -> list[Evidence]:
    """Compare token by token with all at once, for one sentence."""
    x = tokens(1, 16, _WIDTH)
    steps = {
        "bn with running statistics": trained(new("bn", _WIDTH)),
        "bn with the batch's own statistics": trained(new("bn", _WIDTH, eval_stats="batch")),
    }
    return [
        piece(
            f"{name}: token by token, a sentence comes out otherwise than at once",
            said(moved),
            holds=moves(moved),
            moved=moved,
        )
        for name, norm in steps.items()
        for moved in [movement(_one_by_one(norm, x), run(norm, x))]
    ]


def _one_by_one(norm: Norm, x: Float[Tensor, "1 P D"]) -> Float[Tensor, "1 P D"]:
    real = torch.ones(1, 1, dtype=torch.bool)
    with torch.no_grad():
        return torch.cat([norm(x[:, [t]], Stream(real, start=t)) for t in range(x.shape[1])], 1)


def ranks() -> list[Evidence]:
    """Divide a batch over two processes, with statistics of their own and with shared ones."""
    x = tokens(16, _LENGTH, _WIDTH)
    whole = {name: run(new(name, _WIDTH), x) for name in ("bn", "ln")}
    moved = {
        name: movement(torch.cat([run(new(name, _WIDTH), half) for half in x.chunk(2)]), y)
        for name, y in whole.items()
    }
    shared = movement(_in_step(x), whole["bn"])
    return [
        piece(
            "bn: half of the batch on each of two processes comes out otherwise (norm.sync=false)",
            said(moved["bn"]),
            holds=moves(moved["bn"]),
            moved=moved["bn"],
        ),
        piece(
            "bn: it does so with statistics summed over processes, too (norm.sync=true)",
            said(shared),
            holds=moves(shared),
            moved=shared,
        ),
        piece("ln: it does not", said(moved["ln"]), holds=not moves(moved["ln"])),
    ]


def _in_step(x: Float[Tensor, "B P D"]) -> Float[Tensor, "B P D"]:
    """Normalize each half of a batch in a thread, whose sums wait for and include the other's."""
    together = threading.Barrier(2)
    tables: dict[int, Tensor] = {}

    def summed(rank: int, table: Tensor) -> Tensor:
        tables[rank] = table
        together.wait()
        total = tables[0] + tables[1]
        together.wait()
        return total

    def half(rank: int) -> Tensor:
        norm = new("bn", _WIDTH)
        assert isinstance(norm, BatchNorm)
        norm.together = Pooling(norm.pools, partial(summed, rank))
        own = x.chunk(2)[rank]
        with torch.no_grad():
            return norm(own, Stream(torch.ones(own.shape[:2], dtype=torch.bool)))

    with ThreadPoolExecutor(2) as pool:
        return torch.cat(list(pool.map(half, (0, 1))))
