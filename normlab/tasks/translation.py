"""Translation: parallel text, a seq2seq model, label-smoothed cross-entropy, BLEU."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from normlab.data.batching import Batching, eval_batches, padding_share
from normlab.data.batching import BatchStream as IndexStream
from normlab.data.corpus import Corpus
from normlab.data.encoded import EncodedPairs, EncodedText
from normlab.data.prepare import PreparedTranslation, prepare_translation
from normlab.data.resident import ResidentPairs
from normlab.decoding import Hypothesis, SearchSettings, search
from normlab.distributed import Shard, gather_objects, is_main, sum_scalars
from normlab.metrics.counts import mean_score, perplexity
from normlab.models.base import Longest, TextToText
from normlab.models.seq2seq import Seq2Seq
from normlab.norms.base import Stream
from normlab.progress import counted
from normlab.records.atomic import atomic_write
from normlab.records.record import Score
from normlab.tasks.base import Task
from normlab.tasks.cross_entropy import label_smoothed_cross_entropy
from normlab.tasks.padded import places_of, widened
from normlab.tasks.translated import floors, names, plain_scores, reduced, token_score

LOSS = "loss"


@dataclass(frozen=True)
class TranslationBatch:
    """Sentence pairs as tensors. `places` are the flat indices of the real target tokens."""

    source: Int[Tensor, "B S"]
    source_valid: Bool[Tensor, "B S"]
    tgt_in: Int[Tensor, "B P"]
    tgt_valid: Bool[Tensor, "B P"]
    places: Int[Tensor, "N"]
    tgt_out: Int[Tensor, "N"]
    counts: dict[str, int]
    tokens: int
    positions: int
    padding: int

    def to(self, device: torch.device) -> "TranslationBatch":
        """Return the batch on a device."""
        moved = {
            name: value.to(device, non_blocking=True)
            for name, value in vars(self).items()
            if torch.is_tensor(value)
        }
        return replace(self, **moved)


class TranslationStream(Iterator[TranslationBatch]):
    """Batches of sentence pairs, drawn by an index stream."""

    def __init__(
        self,
        task: "Translation",
        pairs: EncodedPairs | ResidentPairs,
        indices: IndexStream,
    ):
        self._task, self._pairs, self._indices = task, pairs, indices

    @property
    def epochs(self) -> float:
        """Return the number of epochs drawn, a begun one by its share."""
        place = self._indices.state_dict()
        return place["epoch"] + place["index"] / self._indices.batches_per_epoch

    def __next__(self) -> TranslationBatch:
        return self._task.collate(self._pairs, next(self._indices))

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the stream."""
        return self._indices.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a place."""
        self._indices.load_state_dict(state)


class Translation(Task):
    """Translate between the two languages of a corpus.

    Args:
        corpus: where the text comes from.
        vocab_size, joint_vocabulary, max_length: see `prepare_translation`.
        batch_size, max_tokens, batching: how training sentences share batches; exactly one of the
            two sizes is set.
        eval_batch_size: sentences a batch in validation and test.
        label_smoothing: share of the target distribution spread over the vocabulary.
        valid_search, test_search: how validation and test sentences are decoded.
    """

    headline = "bleu"

    def __init__(
        self,
        corpus: Corpus,
        *,
        vocab_size: int,
        joint_vocabulary: bool,
        max_length: int,
        batch_size: int | None,
        max_tokens: int | None,
        batching: Batching,
        eval_batch_size: int,
        label_smoothing: float,
        valid_search: SearchSettings,
        test_search: SearchSettings,
    ):
        self.corpus = corpus
        self.vocab_size = vocab_size
        self.joint_vocabulary = joint_vocabulary
        self.max_length = max_length
        self.batch_size = batch_size
        self.max_tokens = max_tokens
        self.batching: Batching = batching
        self.eval_batch_size = eval_batch_size
        self.label_smoothing = label_smoothing
        self.valid_search = valid_search
        self.test_search = test_search
        self._device: torch.device | None = None

    @cached_property
    def data(self) -> PreparedTranslation:
        """Return the tokenized corpus, prepared on first use."""
        return prepare_translation(
            self.corpus,
            vocab_size=self.vocab_size,
            joint=self.joint_vocabulary,
            max_length=self.max_length,
        )

    def describe(self) -> dict[str, Any]:
        """Return the data's description with the padding share of the batches it is trained in."""
        stream = self._index_stream(Shard(0, 1), seed=0)
        batches = [next(stream) for _ in range(stream.batches_per_epoch)]
        share = padding_share(_lengths(self.data.pairs["train"]), batches)
        return {**self.data.description, "padding_share": share}

    def spec(self) -> TextToText:
        """Return the vocabularies, and the split with the longest sentence."""
        longest = {split: int(pairs.lengths.max()) for split, pairs in self.data.pairs.items()}
        split = max(longest, key=lambda name: longest[name])
        return TextToText(
            source_vocab=len(self.data.source_tokenizer),
            target_vocab=len(self.data.target_tokenizer),
            pad_id=self.data.target_tokenizer.pad_id,
            longest=Longest(
                longest[split], f"a sentence of {split} has", "raise it, or lower task.max_length"
            ),
        )

    def train_batches(self, shard: Shard, seed: int) -> TranslationStream:
        """Return the endless training batches of one rank."""
        pairs, indices = self.data.pairs["train"], self._index_stream(shard, seed=seed)
        if self._device is None:
            return TranslationStream(self, pairs, indices)
        return TranslationStream(self, ResidentPairs.of(pairs, self._device), indices)

    def assemble_on(self, device: torch.device) -> None:
        """Keep the training text on a device and assemble its batches there."""
        self._device = device

    def _index_stream(self, shard: Shard, *, seed: int) -> IndexStream:
        return IndexStream(
            _lengths(self.data.pairs["train"]),
            batching=self.batching,
            batch_size=self.batch_size,
            max_tokens=self.max_tokens,
            seed=seed,
            shard=shard,
        )

    def lengths(self, split: str) -> np.ndarray:
        """Return the tokens of source and target with their end of sentence, [n, 2]."""
        return _lengths(self._split(split))

    def reach(self, room: int) -> int:
        """Return the longest side of a pair, or the longest hypothesis that may be searched for."""
        searched = {name: self.test_search for name in self.test_splits()}
        searched["valid"] = self.valid_search
        limits = [
            settings.max_length(int(self.lengths(split)[:, 0].max()), room)
            for split, settings in searched.items()
        ]
        return max(super().reach(room), *limits)

    def planned(self, shard: Shard, seed: int) -> list[np.ndarray]:
        """Return the lengths, int64 [n, 2], of each micro-batch of a rank's first epoch."""
        lengths, stream = self.lengths("train"), self._index_stream(shard, seed=seed)
        return [lengths[next(stream)] for _ in range(stream.batches_per_epoch)]

    def batch(
        self, split: str, indices: Sequence[int], *, padding: float = 0.0
    ) -> TranslationBatch:
        """Return a batch of chosen sentence pairs, padded as `Task.batch` says."""
        if not 0 <= padding < 1:
            raise ValueError(f"padding={padding}: a share from 0 to below 1")
        return self.collate(self._split(split), np.asarray(indices), padding=padding)

    def collate(
        self,
        pairs: EncodedPairs | ResidentPairs,
        indices: np.ndarray,
        *,
        padding: float = 0.0,
    ) -> TranslationBatch:
        """Assemble sentences into one padded batch; each side ends in the end of sentence.

        It lies where the text does. Each side has at least a share `padding` of padding.
        """
        special = self.data.target_tokenizer
        pad_id, bos_id, eos_id = special.pad_id, special.bos_id, special.eos_id
        source = torch.as_tensor(pairs.source.padded(indices, pad_id=pad_id, suffix=eos_id))
        both = torch.as_tensor(
            pairs.target.padded(indices, pad_id=pad_id, prefix=bos_id, suffix=eos_id)
        )
        # All that is counted is known from the lengths: no device is asked, and waited for.
        source_lengths, lengths = (
            side.counts(indices) + 1 for side in (pairs.source, pairs.target)
        )
        if padding:
            source = widened(source, source_lengths, padding, pad_id=pad_id)
            both = widened(both, lengths, padding, pad_id=pad_id, extra=1)
        tgt_in, tgt_out = both[:, :-1].contiguous(), both[:, 1:]
        source_valid, tgt_valid = source != pad_id, tgt_out != pad_id
        places = places_of(lengths, width=tgt_in.shape[1]).to(both.device, non_blocking=True)
        tokens = len(places)
        positions = source.numel() + tgt_in.numel()
        return TranslationBatch(
            source=source,
            source_valid=source_valid,
            tgt_in=tgt_in,
            tgt_valid=tgt_valid,
            places=places,
            tgt_out=tgt_out.flatten()[places],
            counts={LOSS: tokens},
            tokens=tokens,
            positions=positions,
            padding=positions - tokens - int(source_lengths.sum()),
        )

    def losses(self, model: Seq2Seq, batch: TranslationBatch) -> dict[str, Tensor]:
        """Return the label-smoothed cross-entropy summed over the target tokens."""
        loss, _ = self._cross_entropy(model, batch)
        return {LOSS: loss}

    @torch.no_grad()
    def stepwise(self, model: Seq2Seq, batch: TranslationBatch) -> tuple[Tensor, Tensor]:
        """Return the target tokens' logits by teacher forcing, and by incremental decoding."""
        source, target = Stream(batch.source_valid), Stream(batch.tgt_valid)
        stream = model(batch.source, source, batch.tgt_in, target)
        whole = model.project(stream).flatten(0, 1)
        length = batch.tgt_in.shape[1]
        memory = model.encode(batch.source, source)
        state = model.start_decoding(memory, source, width=1, max_length=length)
        steps = [model.decode_step(batch.tgt_in[:, t], state) for t in range(length)]
        return whole[batch.places], torch.stack(steps, dim=1).flatten(0, 1)[batch.places]

    def _cross_entropy(self, model: Seq2Seq, batch: TranslationBatch) -> tuple[Tensor, Tensor]:
        """Return the summed loss and negative log-likelihood; only real tokens are projected."""
        source, target = Stream(batch.source_valid), Stream(batch.tgt_valid)
        stream = model(batch.source, source, batch.tgt_in, target)
        logits = model.project(stream.flatten(0, 1).index_select(0, batch.places))
        return label_smoothed_cross_entropy(logits, batch.tgt_out, self.label_smoothing)

    @torch.no_grad()
    def evaluate(
        self,
        model: Seq2Seq,
        split: str,
        shard: Shard,
        *,
        outputs: Path | None = None,
        batch_size: int | None = None,
    ) -> dict[str, Score]:
        """Score a split by loss, perplexity, BLEU and chrF; `model` is in evaluation mode.

        `bleu` is sacreBLEU on detokenised text, beside it its `brevity_penalty` and `length_ratio`;
        `bleu_tok` is BLEU on lowercased Moses tokens, the figure of the IWSLT'14 papers.
        """
        pairs = self._split(split)
        device = next(model.parameters()).device
        settings = self.valid_search if split == "valid" else self.test_search
        sums = [0.0, 0.0, 0.0]
        found: list[tuple[int, list[int]]] = []
        size = batch_size or self.eval_batch_size
        for indices in counted(eval_batches(_lengths(pairs), batch_size=size, shard=shard), len):
            batch = self.collate(pairs, indices).to(device)
            loss, nll = self._cross_entropy(model, batch)
            sums = [a + float(b) for a, b in zip(sums, (loss, nll, batch.tokens), strict=True)]
            hypotheses = self.decode(model, batch, settings)
            found += zip(map(int, indices), (h.tokens for h in hypotheses), strict=True)
        loss_sum, nll_sum, tokens = sum_scalars(sums)
        everybody = sorted(pair for share in gather_objects(found) for pair in share)
        scores = {
            "loss": mean_score(loss_sum, int(tokens), higher_is_better=False),
            "nll": mean_score(nll_sum, int(tokens), higher_is_better=False),
            "perplexity": perplexity(nll_sum, int(tokens)),
        }
        return scores | self._text_scores(split, [ids for _, ids in everybody], outputs)

    @contextmanager
    def some(self, split: str, count: int) -> Iterator[int]:
        """Keep sentences that are spread evenly over the split."""
        pairs = self._split(split)
        chosen = np.linspace(0, len(pairs) - 1, min(count, len(pairs))).round().astype(int)
        with reduced(self, split, chosen):
            yield 1

    @torch.no_grad()
    def translate(self, model: Seq2Seq, lines: Sequence[str]) -> list[str]:
        """Translate sentences as the test is decoded; `model` is in evaluation mode.

        Raises ValueError naming the line that is empty or longer than the model's positions.
        """
        ids = self.data.source_tokenizer.encode_batch([self.data.source_line(x) for x in lines])
        limit = model.encoder.embedding.max_positions
        for number, sentence in enumerate(ids, 1):
            if not 0 < len(sentence) < limit:
                raise ValueError(
                    f"line {number} has {len(sentence)} tokens: a sentence has 1 to {limit - 1}"
                )
        text = EncodedText.from_sentences(ids)
        pairs = EncodedPairs(text, text)
        device = next(model.parameters()).device
        found: list[tuple[int, list[int]]] = []
        for indices in counted(eval_batches(_lengths(pairs), batch_size=self.eval_batch_size), len):
            batch = self.collate(pairs, indices).to(device)
            hypotheses = self.decode(model, batch, self.test_search)
            found += zip(map(int, indices), (h.tokens for h in hypotheses), strict=True)
        lines = self.data.target_tokenizer.decode_batch(ids for _, ids in sorted(found))
        return self.data.plain(lines)

    def decode(self, model, batch: TranslationBatch, settings: SearchSettings) -> list[Hypothesis]:
        """Return the best hypothesis of each sentence of a batch; `model` is as `search` has it."""
        special = self.data.target_tokenizer
        return search(
            model,
            batch.source,
            Stream(batch.source_valid),
            settings,
            bos_id=special.bos_id,
            eos_id=special.eos_id,
            pad_id=special.pad_id,
        )

    def _text_scores(
        self, split: str, ids: list[list[int]], outputs: Path | None
    ) -> dict[str, Score]:
        """Score decoded sentences, given in the order of the split."""
        lines = self.data.target_tokenizer.decode_batch(ids)
        plain = self.data.plain(lines)
        if outputs is not None and is_main():
            with atomic_write(outputs) as file:
                file.writelines(line + "\n" for line in plain)
        scores = plain_scores(self.data, split, plain)
        return scores | {"bleu_tok": token_score(self.data, split, lines)}

    def score_lines(self, split: str, lines: Sequence[str]) -> dict[str, Score]:
        """Score plain translations such as a run's `hypotheses.txt`; see `plain_scores`."""
        self._split(split)
        return plain_scores(self.data, split, lines)

    def score_names(self) -> Sequence[str]:
        """Return the names of a validation's scores."""
        return names(self.corpus)

    def floors(self) -> dict[str, float]:
        """Return what the scores of the test are worth without learning."""
        return floors(self.data, "test", label_smoothing=self.label_smoothing)

    def _split(self, name: str) -> EncodedPairs:
        if name not in self.data.pairs:
            raise ValueError(f"no split {name!r}: the corpus has {', '.join(self.data.pairs)}")
        return self.data.pairs[name]

    def test_splits(self) -> list[str]:
        """Return the test sets of the corpus, the one called `test` first."""
        names = [name for name in self.data.pairs if name.startswith("test")]
        return sorted(names, key=lambda name: (name != "test", name))


def _lengths(pairs: EncodedPairs) -> np.ndarray:
    """Return tokens of both sides with their end of sentence, [n, 2]."""
    return np.stack([pairs.source.lengths, pairs.target.lengths], axis=1) + 1
