"""Numbers that the articles quote about models, counted."""

import torch
from torch import nn

from normlab.claims.evidence import Evidence
from normlab.inspect.checks.tools import piece
from normlab.inspect.question import question

VOCABULARY, POSITIONS, SEGMENTS, DIM, LAYERS = 30_522, 512, 2, 768, 12


@question("facts.bert_base", of="claim")
def bert_base() -> list[Evidence]:
    """How many parameters has BERT-base?

    It has embeddings of pieces, positions and segments, a norm, twelve layers, and the pooler.
    """
    with torch.device("meta"):
        parts = [nn.Embedding(rows, DIM) for rows in (VOCABULARY, POSITIONS, SEGMENTS)]
        parts += [nn.TransformerEncoderLayer(DIM, 12, 4 * DIM) for _ in range(LAYERS)]
        parts += [nn.LayerNorm(DIM), nn.Linear(DIM, DIM)]
    total = sum(each.numel() for part in parts for each in part.parameters())
    holds = round(total / 1e7) == 11
    return [
        piece("BERT-base has 110 million parameters", f"{total:,}", holds=holds, total=float(total))
    ]
