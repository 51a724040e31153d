"""The documents' sentence with its 999, through a norm and the softmax of its self-attention.

Document 002's "I love eat" is three tokens of four features. It attends to itself with the vectors
as queries and keys, so that the norm is all that matters: p = softmax(y y' / sqrt(4)).
"""

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.instantiate import instantiate
from normlab.norms.base import Norm, RunningNorm, Stream
from normlab.norms.local import NoNorm

WORDS = ("I", "love", "eat")
TOKENS = ((10.0, 20.0, 999.0, -5.0), (0.1, 0.2, 0.1, 0.1), (5.0, 5.0, 5.0, 5.0))
_WIDTH = len(TOKENS[0])


def attend(y: Float[Tensor, "N D"]) -> Float[Tensor, "N N"]:
    """Return softmax(y y' / sqrt(D)), where each token looks."""
    return (y @ y.T / math.sqrt(y.shape[-1])).softmax(-1)


def slope(weights: Float[Tensor, "*N M"]) -> Float[Tensor, "*N"]:
    """Return 1 - sum p^2 of each row, which is 0 where one weight is 1."""
    return 1 - weights.square().sum(-1)


def through(norm: Norm) -> dict[str, Any]:
    """Return what a norm makes of the document's sentence, and where its tokens then look."""
    x = torch.tensor([TOKENS], dtype=torch.float64)
    with torch.no_grad():
        y = norm.double()(x, Stream(torch.ones(x.shape[:2], dtype=torch.bool)))[0]
    weights = attend(y)
    return {
        "values": y.tolist(),
        "largest_logit": float((y @ y.T).abs().max() / math.sqrt(_WIDTH)),
        "largest_weight": weights.amax(-1).tolist(),
        "slope": slope(weights).tolist(),
    }


def fitted(node: Mapping[str, Any], dim: int) -> tuple[Norm, dict[str, int]]:
    """Return the norm of a config node at a width, and the values that had to change to fit it.

    Half the width is tried first: group norm with as many groups as features would erase them.
    """
    try:
        return instantiate(node, "norm", Norm, dim=dim), {}
    except ValueError as error:
        whole = [key for key, value in node.items() if type(value) is int]
        for changed in ({key: number} for key in whole for number in (dim // 2, dim, 1)):
            try:
                return instantiate({**node, **changed}, "norm", Norm, dim=dim), changed
            except ValueError:
                continue
        raise error


def in_sentence(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document's sentence without a norm and through each norm of the model's stacks.

    A norm with running statistics is run in training mode and, new as it is, in eval mode.
    """
    found: dict[str, Any] = {"no norm": {**through(NoNorm(_WIDTH)), "changed": {}}}
    for site in ("norm", "encoder_norm", "decoder_norm"):
        if config[site] is not None:
            norm, changed = fitted(config[site], _WIDTH)
            fresh = copy.deepcopy(norm).eval()
            found[site] = {**through(norm.train()), "changed": changed}
            if isinstance(norm, RunningNorm):
                found[f"{site}, new in eval"] = {**through(fresh), "changed": changed}
    return found
