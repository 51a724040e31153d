"""Checks of the facts about models that the articles quote."""

import json
from collections import Counter
from typing import Any, NamedTuple

import torch
from torch import nn

from normlab.claim_checks.check import check, finding
from normlab.claims.evidence import CheckFinding
from normlab.config.folders import CONFIG_DIR

SURVEY = CONFIG_DIR.parent / "results" / "survey" / "norms.json"
"""Written by `python scripts/survey_norms.py`."""
VISION = SURVEY.with_name("vision_norms.json")
"""Written by `python scripts/survey_norms.py timm`."""
NEARLY_ALL = 0.9  # the share of classes
VOCABULARY, POSITIONS, SEGMENTS, DIM, LAYERS = 30_522, 512, 2, 768, 12


def parameters_of_bert_base() -> int:
    """Return the number of parameters of BERT-base, without allocating memory for them."""
    with torch.device("meta"):
        parts = [nn.Embedding(rows, DIM) for rows in (VOCABULARY, POSITIONS, SEGMENTS)]
        parts += [nn.TransformerEncoderLayer(DIM, 12, 4 * DIM) for _ in range(LAYERS)]
        parts += [nn.LayerNorm(DIM), nn.Linear(DIM, DIM)]
    return sum(each.numel() for part in parts for each in part.parameters())


@check("facts.bert_base")
def bert_base() -> list[CheckFinding]:
    """How many parameters does BERT-base have?

    It has embeddings of words, positions and segments, a norm, twelve layers, and the pooler.
    """
    total = parameters_of_bert_base()
    return [
        finding(
            "parameters",
            "BERT-base has 110 million parameters",
            f"{total:,}",
            holds=round(total / 1e7) == 11,
            total=total,
        )
    ]


def surveyed() -> dict[str, Any]:
    """Return the surveyed model classes of transformers. Raise OSError if there is no survey."""
    return {
        k: v for k, v in json.loads(SURVEY.read_text("utf-8"))["classes"].items() if "norms" in v
    }


class TransformersNorms(NamedTuple):
    """The number of model classes in transformers, and how many have each kind of norm.

    `layer_or_rms` is the number with layer norm or RMS norm, and `only_batch` the number with batch
    norm but neither of these.
    """

    classes: int
    by_kind: Counter[str]
    layer_or_rms: int
    only_batch: int


def norms_in_transformers() -> TransformersNorms:
    """Count the norms of the surveyed classes."""
    kinds = [{*row["norms"]} for row in surveyed().values()]
    with_either = [bool(each & {"layer", "rms"}) for each in kinds]
    return TransformersNorms(
        len(kinds),
        Counter(kind for each in kinds for kind in each),
        sum(with_either),
        sum(
            "batch" in each and not either for each, either in zip(kinds, with_either, strict=True)
        ),
    )


@check("facts.norms")
def norms() -> list[CheckFinding]:
    """How many models in transformers use layer norm or RMS norm, and how many batch norm?"""
    total, has, either, only_batch = norms_in_transformers()
    answer = (
        f"{either} of {total} model classes do ({has['layer']} layer norm, {has['rms']} RMS "
        f"norm); {has['batch']} have batch norm, and {only_batch} have no norm but batch norm"
    )
    statement = "nearly all Transformers use layer norm or RMS norm"
    return [
        finding("most", statement, answer, holds=either >= NEARLY_ALL * total, share=either / total)
    ]


class VisionNorms(NamedTuple):
    """The number of families of vision models, with each kind of norm, and without any norm."""

    families: int
    by_kind: Counter[str]
    without: int


def norms_in_vision_models() -> VisionNorms:
    """Count the families of timm's models by the norms of their smallest model."""
    rows = json.loads(VISION.read_text("utf-8"))["classes"].values()
    by_kind = Counter(kind for row in rows for kind in row)
    return VisionNorms(len(rows), by_kind, sum(not row for row in rows))


@check("facts.vision_norms")
def vision_norms() -> list[CheckFinding]:
    """Which norms do timm's vision models have, taking the smallest of each family?"""
    families, has, without = norms_in_vision_models()
    answer = (
        f"{has['batch']} of {families} families have batch norm, {has['layer']} layer norm, "
        f"{has['rms']} RMS norm and {has['group']} group norm; {without} none"
    )
    statement = "more vision models have batch norm than any other norm"
    counts = {"batch": float(has["batch"]), "layer": float(has["layer"]), "of": float(families)}
    return [finding("most", statement, answer, holds=has.most_common(1)[0][0] == "batch", **counts)]


def placements_in_transformers() -> Counter[str]:
    """Count the surveyed classes by where their blocks have norms.

    A block starts with a norm (`pre`), ends with one (`post`), or has both (`both`).
    """
    return Counter(row["order"] for row in surveyed().values())


@check("facts.placement")
def placement() -> list[CheckFinding]:
    """How many models in transformers normalize before their sub-layers?"""
    counts = placements_in_transformers()
    classes, start_with_norm = counts.total(), counts["pre"] + counts["both"]
    return [
        finding(
            "most",
            "most Transformers have pre-norm",
            f"of {classes} model classes, the blocks of {start_with_norm} start with a norm, and "
            f"the blocks of {counts['post']} only end with one",
            holds=start_with_norm > classes / 2,
            pre=float(counts["pre"]),
            post=float(counts["post"]),
        )
    ]
