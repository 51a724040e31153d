"""Causal language modelling: predict each token of a document from the tokens before it.

The teacher-forced loss is the training loss; `one_by_one` is the loss on the same tokens when the
model is fed one token at a time, as in generation.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from normlab.data.targets import Windows, text_windows
from normlab.data.vocabulary import DocumentTokenizer
from normlab.metrics.counts import mean_score, perplexity, unigram_nll
from normlab.models.base import GeneratesText
from normlab.models.decoding import SamplingSettings, continuation
from normlab.norms.base import Stream
from normlab.norms.ranks import Shard
from normlab.records.record import Score
from normlab.tasks.base import label_smoothed_cross_entropy, log_probabilities
from normlab.tasks.documents import DocumentTask, Pass, TextBatch
from normlab.tasks.progress import counted

LOSS = "loss"


@dataclass(frozen=True, kw_only=True)
class WindowBatch(TextBatch):
    """Windows of text as tensors. `places` holds the flat indices of the real tokens.

    `tgt_out` holds the tokens that follow them.
    """

    places: Int[Tensor, "N"]
    tgt_out: Int[Tensor, "N"]
    characters: Tensor


@dataclass(kw_only=True, eq=False)
class LanguageModeling(DocumentTask):
    """Causal language modelling.

    Attributes:
        one_by_one: how many test windows are also scored one token at a time.
    """

    one_by_one: int
    causal = True

    def examples(self, one: Pass) -> Windows:
        data = self.data.splits[one.split]
        return text_windows(data.documents, data.text.lengths, max_length=one.limit)

    def collate(self, one: Pass, indices: np.ndarray, *, padding: float = 0.0) -> WindowBatch:
        windows, data = self.drawn(one), self.data.splits[one.split]
        text = windows.batch(data, indices, padding=padding)
        valid = torch.from_numpy(text.valid)
        places = valid.flatten().nonzero()[:, 0]
        return WindowBatch(
            ids=torch.from_numpy(text.ids),
            valid=valid,
            places=places,
            tgt_out=torch.from_numpy(text.next_ids).flatten()[places],
            characters=torch.from_numpy(windows.characters(data, indices)),
            counts={LOSS: len(places)},
            tokens=len(places),
            positions=text.ids.size,
            padding=text.ids.size - len(places),
        )

    def logits(self, model: GeneratesText, batch: WindowBatch) -> Tensor:
        """Return the logits `[N, V]` of the real tokens under teacher forcing."""
        x = model(batch.ids, Stream(batch.valid))
        return model.project(x.flatten(0, 1).index_select(0, batch.places))

    def losses(self, model: GeneratesText, batch: WindowBatch) -> dict[str, Tensor]:
        return {
            LOSS: label_smoothed_cross_entropy(self.logits(model, batch), batch.tgt_out, 0.0)[0]
        }

    @torch.no_grad()
    def stepwise(self, model: GeneratesText, batch: WindowBatch) -> tuple[Tensor, Tensor]:
        rows, length = batch.ids.shape
        state = model.start_decoding(rows, max_length=length)
        steps = [model.decode_step(batch.ids[:, t], state) for t in range(length)]
        by_step = torch.stack(steps, dim=1).flatten(0, 1)[batch.places]
        return self.logits(model, batch), by_step

    @property
    def tallied(self) -> Mapping[str, tuple[int, ...]]:
        return {"tokens": (), "nll": (), "characters": ()}

    def tally(self, model: GeneratesText, batch: WindowBatch) -> dict[str, Tensor]:
        nll = -log_probabilities(self.logits(model, batch), batch.tgt_out)
        row = batch.places // batch.ids.shape[1]
        zero = torch.zeros(len(batch.ids), dtype=torch.float64, device=nll.device)
        return {
            "tokens": batch.valid.sum(1),
            "nll": zero.index_add(0, row, nll.double()),
            "characters": batch.characters,
        }

    def blind_sums(self, split: str) -> dict[str, float]:
        data, windows = self.data.splits[split], self.drawn(self.evaluated(split))
        counts = np.bincount(data.text.ids, minlength=len(self.data.tokenizer))
        counts[DocumentTokenizer.eos_id] += windows.ends.sum()
        return {
            "tokens": float(counts.sum()),
            "nll": unigram_nll(counts.tolist()),
            "characters": float(windows.characters(data, np.arange(len(windows))).sum()),
        }

    def scores(self, sums: Mapping[str, float]) -> dict[str, Score]:
        """Return the loss, the perplexity, and the bits per character.

        The end of a document is predicted too; it counts as a token, but not as a character.
        """
        tokens, characters = int(sums["tokens"]), round(sums["characters"])
        found = {
            "loss": mean_score(sums["nll"], tokens, higher_is_better=False),
            "perplexity": perplexity(sums["nll"], tokens),
        }
        if characters:  # a length bucket may hold nothing but ends of documents
            bits = sums["nll"] / math.log(2)
            found["bits_per_character"] = mean_score(bits, characters, higher_is_better=False)
        return found

    @torch.no_grad()
    def evaluate(
        self,
        model: GeneratesText,
        split: str,
        shard: Shard,
        *,
        outputs: Path | None = None,
        batch_size: int | None = None,
    ) -> dict[str, Score]:
        """Score a split; the test also one token at a time, to compare with teacher forcing.

        That adds `one_by_one/loss` and, over the same tokens, `one_by_one/teacher_forced_loss`.
        """
        scores = super().evaluate(model, split, shard, outputs=outputs, batch_size=batch_size)
        if split == "test" and batch_size is None and self.one_by_one:
            scores |= self._one_by_one(model, split)
        return scores

    def _one_by_one(self, model: GeneratesText, split: str) -> dict[str, Score]:
        """Score windows that are evenly spaced over the split, one window per batch."""
        count = len(self.lengths(split))
        device = next(model.parameters()).device
        sums, tokens = np.zeros(2), 0
        chosen = np.unique(np.linspace(0, count - 1, min(self.one_by_one, count)).round())
        for index in counted(chosen.tolist()):
            batch = self.batch(split, [int(index)]).to(device)
            both = self.stepwise(model, batch)
            sums += [-float(log_probabilities(logits, batch.tgt_out).sum()) for logits in both]
            tokens += batch.tokens
        return {
            f"one_by_one/{name}": mean_score(total, tokens, higher_is_better=False)
            for name, total in zip(("teacher_forced_loss", LOSS), sums.tolist(), strict=True)
        }

    def generate(
        self, model: GeneratesText, prompt: str, settings: SamplingSettings, *, seed: int
    ) -> Iterator[str]:
        """Yield the continuation of a prompt, piece by piece; `model` is in evaluation mode.

        Raises ValueError if the prompt leaves no room for a token.
        """
        tokenizer = self.data.tokenizer
        ids = [DocumentTokenizer.bos_id]
        ids += [token for found, _ in tokenizer.encode(prompt.splitlines()) for token in found]
        room = model.room or len(ids) + settings.max_tokens
        if len(ids) > room:
            raise ValueError(
                f"the prompt has {len(ids) - 1} tokens, and the model has {room} positions: give "
                "a shorter prompt"
            )
        shown = tokenizer.decode(ids)
        drawn: list[int] = []
        eos_id = DocumentTokenizer.eos_id
        for token in continuation(
            model,
            ids,
            settings,
            special=[token for token in range(DocumentTokenizer.first_ordinary) if token != eos_id],
            eos_id=eos_id,
            room=room,
            seed=seed,
        ):
            drawn.append(token)
            text = tokenizer.decode(ids + drawn)
            # A character of several bytes is complete only with its last piece.
            if not text.endswith("\N{REPLACEMENT CHARACTER}"):
                yield text[len(shown) :]
                shown = text
