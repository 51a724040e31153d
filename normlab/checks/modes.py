"""Decides claims 12, 15, 38 and 47: training against inference, and what a norm keeps for it."""

import copy

import torch

from normlab.checks._pieces import moves, new, piece, said, tokens, trained
from normlab.claims.evidence import Evidence
from normlab.explain.subject import run
from normlab.health.movement import movement, percent
from normlab.norms.base import Norm

_WIDTH = 64


def mismatch() -> list[Evidence]:
    """Compare training and eval on the same batch, of few tokens and of many."""
    few, many = (_gap("bn", sequences) for sequences in (2, 256))
    layer = _gap("ln", 2)
    return [
        piece(
            "bn: the same batch comes out otherwise in training and in inference",
            f"it moves by {percent(few)} for 32 tokens, {percent(many)} for 4,096",
            holds=moves(few),
            few=few,
            many=many,
        ),
        piece("ln: it does not", said(layer), holds=not moves(layer), moved=layer),
    ]


def agreement() -> list[Evidence]:
    """Compare layer norm in both modes, and alone with in a batch, bit by bit."""
    norm, x = new("ln", _WIDTH), tokens(8, 16, _WIDTH)
    training = run(norm, x)
    evaluated = run(copy.deepcopy(norm).eval(), x)
    alone = torch.cat([run(norm, sentence[None]) for sentence in x])
    same, single = torch.equal(training, evaluated), torch.equal(training, alone)
    return [
        piece("ln: training and inference are the same", _bits(same), holds=same),
        piece("ln: a batch of one is the same as in a batch of eight", _bits(single), holds=single),
    ]


def buffers() -> list[Evidence]:
    """List what layer norm and batch norm keep, and whether they compute otherwise in eval."""
    x = tokens(4, 8, _WIDTH)
    norms = {name: new(name, _WIDTH) for name in ("ln", "bn")}
    kept = {name: ", ".join(_kept(norm)) for name, norm in norms.items()}
    switches = {
        name: not torch.equal(run(norm, x), run(copy.deepcopy(norm).eval(), x))
        for name, norm in norms.items()
    }
    modes = {True: "two modes", False: "one mode"}
    return [
        piece("ln keeps no buffers", kept["ln"] or "none", holds=not kept["ln"]),
        piece("bn keeps running statistics", kept["bn"] or "none", holds=bool(kept["bn"])),
        piece("ln has one mode", modes[switches["ln"]], holds=not switches["ln"]),
        piece("bn switches between two", modes[switches["bn"]], holds=switches["bn"]),
    ]


def _gap(name: str, sequences: int) -> float:
    norm = trained(new(name, _WIDTH))
    x = tokens(sequences, 16, _WIDTH)
    return movement(run(norm, x), run(copy.deepcopy(norm).train(), x))


def memory() -> list[Evidence]:
    """Count the values that batch norm keeps, with a row for each position and with one for all."""
    positions = (64, 128, 256)
    kept = {count: _size(new("bn_position", _WIDTH, num_positions=count)) for count in positions}
    each = {count: size / count for count, size in kept.items()}
    one = _size(new("bn", _WIDTH))
    said_of = ", ".join(f"{size:,} of {count} positions" for count, size in kept.items())
    return [
        piece(
            "bn_position: what it keeps grows in proportion to the longest sequence",
            f"values of {_WIDTH} features: {said_of}; bn keeps {one:,} whatever the length",
            holds=len(set(each.values())) == 1 and one < min(kept.values()),
            **{f"of_{count}": float(size) for count, size in kept.items()},
        ),
    ]


def _size(norm: Norm) -> int:
    return sum(buffer.numel() for _, buffer in norm.named_buffers())


def _kept(norm: Norm) -> list[str]:
    return [name for name, _ in norm.named_buffers() if name in norm.state_dict()]


def _bits(same: bool) -> str:
    return "equal bit by bit" if same else "not equal"
