"""BERT pretraining: masked-token and next-sentence prediction.

This follows Devlin et al. 2019, sections 3.1 and A.1. The total loss is the mean over masked tokens
plus the mean over segment pairs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from normlab.data.example_random import random_numbers
from normlab.data.masking import NUMBERS_PER_TOKEN, Corruption, mask_tokens
from normlab.data.segment_pairs import LEAST, MARKS, Pairs, segment_pairs
from normlab.data.vocabulary import DocumentTokenizer
from normlab.errors import UserError
from normlab.metrics.counts import mean_scores, perplexity, unigram_nll
from normlab.metrics.glossary import new_score
from normlab.models.text import MaskedLM
from normlab.norms.tokens import Tokens
from normlab.records.record import Score
from normlab.tasks.base import Batch, Draw
from normlab.tasks.lm import SCORED, DocumentTask
from normlab.tasks.losses import label_smoothed_cross_entropy, log_probabilities

TOP = 5


@dataclass(frozen=True, kw_only=True)
class MaskedBatch(Batch):
    """Masked examples as tensors.

    `places` holds the positions to predict in each row, padded to equal length. `real` holds the
    flat indices of the entries of `places` that are not padding, and `labels` the true tokens at
    these positions, row by row. `is_random_next` is 0 if the second segment follows the first, and
    1 if it comes from another document.
    """

    ids: Int[Tensor, "B P"]
    real_tokens: Tokens
    segments: Int[Tensor, "B P"]
    places: Int[Tensor, "B M"]
    real: Int[Tensor, "N"]
    labels: Int[Tensor, "N"]
    is_random_next: Int[Tensor, "B"]


@dataclass(kw_only=True, eq=False)
class MaskedLanguageModeling(DocumentTask):
    """Masked language modelling, with next-sentence prediction unless `nsp` is false.

    Attributes:
        nsp: whether examples have two segments and the next-sentence loss is added.
        short_share: share of examples that are cut shorter than `max_length` (see `segment_pairs`).
        mask_share: share of tokens to predict.
        mask_split: the shares of these tokens that are masked, replaced by a random token, and
            kept.
        whole_word: whether whole words are masked, so that all tokens of a word are predicted or
            none.
    """

    nsp: bool
    short_share: float
    mask_share: float
    mask_split: Sequence[float]
    whole_word: bool
    headline = "mlm_accuracy"
    causal = False
    sum_shapes: ClassVar[Mapping[str, tuple[int, ...]]] = dict.fromkeys(
        ("tokens", "nll", "hits", "hits_in_top", "pairs", "pair_nll", "pair_hits"), ()
    )

    def __post_init__(self):
        super().__post_init__()
        keys = {
            "max_length": self.max_length,
            "eval_max_length": self.eval_max_length,
            "length_change.max_length": self.length_change.max_length,
        }
        special = MARKS if self.nsp else MARKS - 1
        least = special + LEAST
        for key, value in keys.items():
            if value is not None and value < least:
                raise UserError(
                    f"task.{key}={value} is too small: an example has {special} special tokens "
                    f"and room for at least {LEAST} others; set it to {least} or more"
                )

    def examples(self, split: str, draw: Draw, limit: int) -> Pairs:
        data = self.split(split)
        return segment_pairs(
            data.documents,
            data.text.lengths,
            max_length=limit,
            short_share=self.short_share,
            seed=draw.seed,
            epoch=draw.epoch,
            nsp=self.nsp,
        )

    def collate(
        self, split: str, indices: np.ndarray, draw: Draw | None = None, *, padding: float = 0.0
    ) -> MaskedBatch:
        pairs = self.drawn(split, draw)
        whole = pairs.batch(self.split(split), indices, padding=padding)
        rows, width = whole.ids.shape
        seed, epoch, _ = draw or SCORED
        of_epoch = {"seed": seed, "epoch": epoch, "count": NUMBERS_PER_TOKEN}
        numbers = random_numbers("masks", examples=indices, width=width, **of_epoch)
        masked = mask_tokens(
            whole.ids,
            whole.maskable,
            whole.begins if self.whole_word else np.ones_like(whole.begins),
            numbers,
            share=self.mask_share,
            corruption=Corruption(
                DocumentTokenizer.mask_id, self.data.tokenizer.ordinary, self.mask_split
            ),
        )
        tokens = int(whole.valid.sum())
        return MaskedBatch(
            ids=torch.from_numpy(masked.ids),
            segments=torch.from_numpy(whole.segments),
            real_tokens=Tokens.collated(torch.from_numpy(whole.valid)),
            places=torch.from_numpy(masked.places),
            real=torch.from_numpy(np.flatnonzero(masked.chosen)),
            labels=torch.from_numpy(masked.labels),
            is_random_next=torch.from_numpy((~pairs.is_next[indices]).astype(np.int64)),
            counts={"mlm": len(masked.labels)} | ({"nsp": rows} if self.nsp else {}),
            tokens=tokens,
            positions=rows * width,
            padding=rows * width - tokens,
        )

    def fewest_pooled(self, lengths: np.ndarray) -> int:
        least = np.zeros(len(lengths)) if self.whole_word else lengths[:, 0] - MARKS
        return int(np.maximum(np.floor(self.mask_share * least), 1).sum())

    def logits(
        self, model: MaskedLM, batch: MaskedBatch
    ) -> tuple[Float[Tensor, "N V"], Float[Tensor, "B 2"]]:
        """Return the logits for the masked tokens, row by row, and for the segment pairs."""
        x = model(batch.ids, batch.real_tokens, batch.segments)
        return model.token_logits(x, batch.places, batch.real), model.pair_logits(x)

    def losses(self, model: MaskedLM, batch: MaskedBatch) -> dict[str, Tensor]:
        tokens, pairs = self.logits(model, batch)
        losses = {"mlm": label_smoothed_cross_entropy(tokens, batch.labels, 0.0)[0]}
        if self.nsp:
            losses["nsp"] = label_smoothed_cross_entropy(pairs, batch.is_random_next, 0.0)[0]
        return losses

    def score_sums(self, model: MaskedLM, batch: MaskedBatch) -> dict[str, Tensor]:
        tokens, pairs = self.logits(model, batch)
        row = batch.real // batch.places.shape[1]
        best = tokens.topk(min(TOP, tokens.shape[-1])).indices == batch.labels[:, None]
        nll = -log_probabilities(tokens, batch.labels)
        by_token = {
            "tokens": torch.ones_like(nll),
            "nll": nll,
            "hits": best[:, 0],
            "hits_in_top": best.any(-1),
        }
        rows = len(batch.ids)
        return {
            **{name: torch.bincount(row, each.double(), rows) for name, each in by_token.items()},
            "pairs": torch.ones(rows),
            "pair_nll": -log_probabilities(pairs, batch.is_random_next),
            "pair_hits": (pairs.argmax(-1) == batch.is_random_next).double(),
        }

    def blind_sums(self, split: str) -> dict[str, float]:
        pairs = self.drawn(split)
        counts = np.bincount(pairs.ids(self.split(split)))[DocumentTokenizer.first_ordinary :]
        frequent, classes = np.sort(counts)[::-1], np.bincount(pairs.is_next, minlength=2)
        return {
            "tokens": float(counts.sum()),
            "nll": unigram_nll(counts.tolist()),
            "hits": float(frequent[0]),
            "hits_in_top": float(frequent[:TOP].sum()),
            "pairs": float(len(pairs)),
            "pair_nll": unigram_nll(classes.tolist()),
            "pair_hits": float(classes.max()),
        }

    def scores(self, sums: Mapping[str, float]) -> dict[str, Score]:
        """Return `loss` (the sum of both losses), each loss, accuracies and MLM perplexity."""
        tokens = int(sums["tokens"])
        scores = mean_scores(
            tokens,
            mlm_loss=sums["nll"],
            mlm_accuracy=sums["hits"],
            mlm_accuracy_top5=sums["hits_in_top"],
        )
        scores["perplexity"] = perplexity(sums["nll"], tokens)
        loss = scores["mlm_loss"].value
        if self.nsp:
            scores |= mean_scores(
                int(sums["pairs"]), nsp_loss=sums["pair_nll"], nsp_accuracy=sums["pair_hits"]
            )
            loss += scores["nsp_loss"].value
        return {"loss": new_score("loss", loss, tokens), **scores}
