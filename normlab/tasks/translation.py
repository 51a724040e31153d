"""Translation of parallel text, trained with label-smoothed cross-entropy and scored by BLEU."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from normlab.data.batching import eval_batches
from normlab.data.corpus import Corpus
from normlab.data.encoded import EncodedPairs, EncodedText
from normlab.data.languages import language_of
from normlab.data.prepare_pairs import PreparedTranslation, prepare_translation
from normlab.data.vocabulary import PAIR_SPECIALS, Tokenizer, check_vocab_size
from normlab.distributed.process_group import Shard, gather_objects, is_main
from normlab.errors import UserError
from normlab.metrics.bleu import bleu_scores, corpus_chrf
from normlab.metrics.counts import mean_scores, perplexity, unigram_nll
from normlab.models.base import TextToText
from normlab.models.decoding import SearchSettings, SpecialIds, search
from normlab.models.seq2seq import Seq2Seq
from normlab.norms.tokens import Tokens
from normlab.records.files import atomic_write
from normlab.records.record import Score
from normlab.stages import counted
from normlab.tasks.base import Batch, Draw, Task, step_by_step
from normlab.tasks.losses import label_smoothed_cross_entropy


@dataclass(frozen=True, kw_only=True)
class TranslationBatch(Batch):
    """Sentence pairs as tensors. `tgt_out` holds only the real target tokens."""

    source: Int[Tensor, "B S"]
    source_tokens: Tokens
    tgt_in: Int[Tensor, "B P"]
    tgt_tokens: Tokens
    tgt_out: Int[Tensor, "N"]


def padded(pairs: EncodedPairs, indices: np.ndarray, *, padding: float = 0.0) -> TranslationBatch:
    """Assemble sentence pairs into a padded batch.

    Each sentence gets an end-of-sentence token. Padding makes up at least a fraction `padding` of
    each side.
    """
    pad_id = Tokenizer.pad_id
    options = {"pad_id": pad_id, "suffix": Tokenizer.eos_id, "padding": padding}
    source = pairs.source.padded(indices, **options)
    tgt_out = pairs.target.padded(indices, **options)
    tgt_in = torch.nn.functional.pad(tgt_out[:, :-1], (1, 0), value=Tokenizer.bos_id)
    source_valid, tgt_valid = source != pad_id, tgt_out != pad_id
    tgt_out = tgt_out[tgt_valid]
    tokens, positions = len(tgt_out), source.numel() + tgt_in.numel()
    return TranslationBatch(
        source=source,
        source_tokens=Tokens.collated(source_valid),
        tgt_in=tgt_in,
        tgt_tokens=Tokens.collated(tgt_valid),
        tgt_out=tgt_out,
        counts={"loss": tokens},
        tokens=tokens,
        positions=positions,
        padding=positions - tokens - int(source_valid.sum()),
    )


@dataclass(kw_only=True, eq=False)
class Translation(Task):
    """Translation between the two languages of a corpus.

    Attributes:
        corpus: where the text comes from.
        vocab_size, joint_vocabulary, max_length: see `prepare_translation`.
        label_smoothing: share of the target distribution spread over the whole vocabulary.
        valid_search, test_search: how validation and test sentences are decoded.
    """

    corpus: Corpus
    vocab_size: int
    joint_vocabulary: bool
    max_length: int
    label_smoothing: float
    valid_search: SearchSettings
    test_search: SearchSettings
    headline = "bleu"
    sum_shapes: ClassVar[Mapping[str, tuple[int, ...]]] = {"loss": (), "nll": (), "tokens": ()}

    def __post_init__(self) -> None:
        check_vocab_size(self.vocab_size, PAIR_SPECIALS)

    @cached_property
    def data(self) -> PreparedTranslation:
        """The tokenized corpus, prepared on first use."""
        return prepare_translation(
            self.corpus,
            vocab_size=self.vocab_size,
            joint=self.joint_vocabulary,
            max_length=self.max_length,
        )

    def describe(self) -> dict[str, Any]:
        return {**self.data.description, "padding_share": self.padding_share()}

    def checksums(self) -> Mapping[str, Any]:
        return self.data.description["checksums"]

    def vocabulary(self) -> dict[str, str]:
        return self.data.vocabulary()

    def restore(self, vocabulary: Mapping[str, str], description: Mapping[str, Any]) -> None:
        self.data = PreparedTranslation.restored(vocabulary, {**description})

    def spec(self) -> TextToText:
        lengths = self.data.description["lengths"]
        return TextToText(
            source_vocab=len(self.data.source_tokenizer),
            target_vocab=len(self.data.target_tokenizer),
            pad_id=Tokenizer.pad_id,
            longest=1 + max(int(x["max"]) for split in lengths.values() for x in split.values()),
        )

    @property
    def splits(self) -> Mapping[str, EncodedPairs]:
        return self.data.pairs

    def lengths(self, split: str, draw: Draw | None = None) -> np.ndarray:
        return self.split(split).lengths

    def collate(
        self, split: str, indices: np.ndarray, draw: Draw | None = None, *, padding: float = 0.0
    ) -> TranslationBatch:
        return padded(self.split(split), indices, padding=padding)

    def longest_fed(self, max_positions: int) -> int:
        searched = dict.fromkeys(self.test_splits(), self.test_search)
        searched["valid"] = self.valid_search
        limits = [
            settings.max_length(int(self.lengths(split)[:, 0].max()), max_positions)
            for split, settings in searched.items()
        ]
        return max(super().longest_fed(max_positions), *limits)

    def logits(self, model: Seq2Seq, batch: TranslationBatch) -> Tensor:
        """Return the logits `[N, V]` at the real target tokens under teacher forcing."""
        x = model(batch.source, batch.source_tokens, batch.tgt_in, batch.tgt_tokens)
        return model.project(batch.tgt_tokens.pack(x))

    def losses(self, model: Seq2Seq, batch: TranslationBatch) -> dict[str, Tensor]:
        logits = self.logits(model, batch)
        return {
            "loss": label_smoothed_cross_entropy(logits, batch.tgt_out, self.label_smoothing)[0]
        }

    def score_sums(self, model: Seq2Seq, batch: TranslationBatch) -> dict[str, Tensor]:
        logits, sizes = self.logits(model, batch), [batch.tokens]
        if self.length_buckets:  # sums per sentence, which is slower
            sizes = batch.tgt_tokens.real(batch.tgt_in).sum(1).tolist()
        sums = [
            label_smoothed_cross_entropy(*part, self.label_smoothing)
            for part in zip(logits.split(sizes), batch.tgt_out.split(sizes), strict=True)
        ]
        loss, nll = (torch.stack(each) for each in zip(*sums, strict=True))
        return {"loss": loss, "nll": nll, "tokens": torch.tensor(sizes)}

    @torch.no_grad()
    def stepwise(self, model: Seq2Seq, batch: TranslationBatch) -> tuple[Tensor, Tensor]:
        source = batch.source_tokens
        memory, length = model.encode(batch.source, source), batch.tgt_in.shape[1]
        state = model.start_decoding(memory, source, width=1, max_length=length)
        stepwise = step_by_step(model, batch.tgt_in, state)
        return self.logits(model, batch), batch.tgt_tokens.pack(stepwise)

    def scores(self, sums: Mapping[str, Any]) -> dict[str, Score]:
        tokens = int(sums["tokens"])
        means = mean_scores(tokens, loss=sums["loss"], nll=sums["nll"])
        return means | {"perplexity": perplexity(sums["nll"], tokens)}

    def evaluate(
        self, model: Any, split: str, shard: Shard, *, outputs: Path | None = None, **options: Any
    ) -> dict[str, Score]:
        """Score a split by loss, perplexity, BLEU and chrF. `model` must be in eval mode.

        `bleu` is sacreBLEU on detokenized text, with its `brevity_penalty` and `length_ratio`.
        `bleu_tok` is BLEU on lowercased Moses tokens, the metric of the IWSLT'14 papers. It is
        computed only if spaces separate words in the target language (sacreBLEU's tokenizer is
        `13a`).
        """
        settings = self.valid_search if split == "valid" else self.test_search
        translated: list[tuple[int, list[int]]] = []

        def translate(indices: np.ndarray, batch: TranslationBatch) -> None:
            tokens = self.decode(model, batch, settings)
            translated.extend(zip(indices.tolist(), tokens, strict=True))

        scores = super().evaluate(model, split, shard, each=translate, **options)
        all_translated = sorted(pair for share in gather_objects(translated) for pair in share)
        chosen, tokens = zip(*all_translated, strict=True)
        lines = self.data.target_tokenizer.decode_batch(tokens)
        plain = self.data.plain(lines)
        if outputs is not None and is_main():
            with atomic_write(outputs) as file:
                file.writelines(line + "\n" for line in plain)
        return scores | self.score_lines(split, plain, decoded=lines, chosen=chosen)

    @torch.no_grad()
    def translate(self, model: Seq2Seq, lines: Sequence[str]) -> list[str]:
        """Translate lines of plain text with `test_search`. `model` must be in eval mode.

        Raises UserError if a line is empty or too long for the model.
        """
        ids = self.data.source_tokenizer.encode_batch(self.data.source_lines(lines))
        limit = model.encoder.embedding.max_positions
        for number, sentence in enumerate(ids, 1):
            if not 0 < len(sentence) < limit:
                raise UserError(
                    f"line {number} has {len(sentence)} tokens, but must have 1 to {limit - 1}"
                )
        text = EncodedText.from_sentences(ids)
        pairs = EncodedPairs(text, text)
        device = next(model.parameters()).device
        translated: dict[int, list[int]] = {}
        for indices in counted(eval_batches(pairs.lengths, batch_size=self.eval_batch_size), len):
            tokens = self.decode(model, padded(pairs, indices).to(device), self.test_search)
            translated |= zip(indices.tolist(), tokens, strict=True)
        lines = self.data.target_tokenizer.decode_batch(translated[i] for i in sorted(translated))
        return self.data.plain(lines)

    def decode(self, model, batch: TranslationBatch, settings: SearchSettings) -> list[list[int]]:
        """Return the tokens of each sentence's best translation (see `search`)."""
        special = SpecialIds(Tokenizer.bos_id, Tokenizer.eos_id, Tokenizer.pad_id)
        best = search(model, batch.source, batch.source_tokens, settings, special)
        return [hypothesis.tokens for hypothesis in best]

    def score_lines(
        self,
        split: str,
        lines: Sequence[str],
        *,
        decoded: list[str] | None = None,
        chosen: Sequence[int] | None = None,
    ) -> dict[str, Score]:
        """Score plain-text translations by BLEU, brevity penalty, length ratio and chrF.

        `chosen` holds the indices of the translated sentences, or is None for the whole split.
        `decoded` holds the same lines as the tokenizer returned them. If it is set, `bleu_tok` is
        added (see `evaluate`). Raises UserError if the split does not exist, or if there are more
        or fewer lines than references.
        """
        self.split(split)
        data, target = self.data, self.data.texts[split].target
        target = target if chosen is None else [target[i] for i in chosen]
        references = data.plain(target)
        lowercase = data.form != "raw"  # tokenized text is lowercased for scoring
        tokenize = data.target.bleu_tokenizer
        scores = bleu_scores(lines, references, lowercase=lowercase, tokenize=tokenize)
        scores["chrf"] = corpus_chrf(lines, references)
        if decoded is not None and tokenize == "13a":
            words, expected = data.words(decoded), data.words(target)
            by_token = bleu_scores(words, expected, lowercase=True, tokenize="none")
            scores["bleu_tok"] = by_token["bleu"]
        return scores

    def score_names(self) -> Sequence[str]:
        target = language_of(self.corpus.languages[1], "task.corpus.target_language")
        by_text = ["bleu", "brevity_penalty", "length_ratio", "chrf"]
        by_text += ["bleu_tok"] if target.bleu_tokenizer == "13a" else []
        return [*super().score_names(), *by_text]

    def baselines(self) -> dict[str, float]:
        """Return BLEU and chrF of copying the source, and losses of predicting token frequencies.

        `loss` is the entropy of the label-smoothed frequencies.
        """
        data, smoothing = self.data, self.label_smoothing
        source = data.texts["test"].source
        copied = self.score_lines("test", data.plain(source), decoded=source)
        target = data.pairs["test"].target
        counts = np.bincount(target.ids, minlength=len(data.target_tokenizer))
        counts[data.target_tokenizer.eos_id] += len(target)
        tokens, nll = int(counts.sum()), unigram_nll(counts.tolist())
        guess = (1 - smoothing) * counts / tokens + smoothing / len(counts)
        guess = guess[guess > 0]
        return {
            "loss": float(-(guess * np.log(guess)).sum()),
            "nll": nll / tokens,
            "perplexity": perplexity(nll, tokens).value,
            **{name: copied[name].value for name in ("bleu", "bleu_tok", "chrf") if name in copied},
        }
