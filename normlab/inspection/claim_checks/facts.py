"""Counts the numbers that the articles quote about models."""

import json
from collections import Counter
from typing import Any

import torch
from torch import nn

from normlab.claims.evidence import CheckFinding
from normlab.config.folders import CONFIG_DIR
from normlab.inspection.claim_checks.check import check, finding

SURVEY = CONFIG_DIR.parent / "results" / "survey" / "norms.json"
"""Written by `python scripts/survey_norms.py`."""
VISION = SURVEY.with_name("vision_norms.json")
"""Written by `python scripts/survey_norms.py timm`."""
VOCABULARY, POSITIONS, SEGMENTS, DIM, LAYERS = 30_522, 512, 2, 768, 12


@check("facts.bert_base")
def bert_base() -> list[CheckFinding]:
    """How many parameters does BERT-base have?

    It has embeddings of words, positions and segments, a norm, twelve layers, and the pooler.
    """
    with torch.device("meta"):
        parts = [nn.Embedding(rows, DIM) for rows in (VOCABULARY, POSITIONS, SEGMENTS)]
        parts += [nn.TransformerEncoderLayer(DIM, 12, 4 * DIM) for _ in range(LAYERS)]
        parts += [nn.LayerNorm(DIM), nn.Linear(DIM, DIM)]
    total = sum(each.numel() for part in parts for each in part.parameters())
    holds = round(total / 1e7) == 11
    return [
        finding(
            "parameters",
            "BERT-base has 110 million parameters",
            f"{total:,}",
            holds=holds,
            total=float(total),
        )
    ]


def surveyed() -> dict[str, Any]:
    """Return the norms of the surveyed classes of transformers; OSError if there are none."""
    return {
        k: v for k, v in json.loads(SURVEY.read_text("utf-8"))["classes"].items() if "norms" in v
    }


@check("facts.norms")
def norms() -> list[CheckFinding]:
    """How many models in transformers use layer norm or RMS norm, and how many batch norm?"""
    classes = surveyed()
    total = len(classes)
    has = Counter(kind for row in classes.values() for kind in row["norms"])
    either = sum(bool({"layer", "rms"} & {*row["norms"]}) for row in classes.values())
    alone = sum(
        "batch" in row["norms"] and not {"layer", "rms"} & {*row["norms"]}
        for row in classes.values()
    )
    answer = (
        f"{either} of {total} model classes do ({has['layer']} layer norm, {has['rms']} RMS norm); "
        f"batch norm is in {has['batch']}, and alone in {alone}"
    )
    statement = "nearly all Transformers use layer norm or RMS norm"
    return [finding("most", statement, answer, holds=either >= 0.9 * total, share=either / total)]


@check("facts.vision_norms")
def vision_norms() -> list[CheckFinding]:
    """Which norms does timm's smallest model of each family of vision models have?"""
    rows = json.loads(VISION.read_text("utf-8"))["classes"].values()
    has = Counter(kind for row in rows for kind in row)
    answer = (
        f"{has['batch']} of {len(rows)} families have batch norm, {has['layer']} layer norm, "
        f"{has['rms']} RMS norm and {has['group']} group norm; {sum(not row for row in rows)} none"
    )
    statement = "more vision models have batch norm than any other norm"
    counts = {"batch": float(has["batch"]), "layer": float(has["layer"]), "of": float(len(rows))}
    return [finding("most", statement, answer, holds=has.most_common(1)[0][0] == "batch", **counts)]


@check("facts.placement")
def placement() -> list[CheckFinding]:
    """How many models in transformers normalize before their sub-layers?"""
    classes = surveyed()
    orders = Counter(row["order"] for row in classes.values())
    answer = (
        f"of {len(classes)} model classes, the blocks of {orders['pre'] + orders['both']} start "
        f"with a norm, and the blocks of {orders['post']} only end with one"
    )
    statement = "most Transformers have pre-norm"
    holds = orders["pre"] + orders["both"] > len(classes) / 2
    return [
        finding(
            "most",
            statement,
            answer,
            holds=holds,
            pre=float(orders["pre"]),
            post=float(orders["post"]),
        )
    ]
