"""Language modelling on documents: a base class for causal and masked LM, and causal LM."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from normlab.data.batching import Batches
from normlab.data.documents import DocumentCorpus
from normlab.data.prepare_documents import PreparedDocuments, prepare_documents
from normlab.data.text_windows import Windows, text_windows
from normlab.data.vocabulary import (
    LINE_BREAK,
    SPECIALS,
    DocumentTokenizer,
    Pieces,
    check_vocab_size,
)
from normlab.distributed.process_group import Shard
from normlab.errors import UserError
from normlab.metrics.counts import mean_scores, perplexity, unigram_nll
from normlab.models.base import GeneratesText, Text
from normlab.models.decoding import SamplingSettings, continuation
from normlab.norms.tokens import Tokens
from normlab.records.record import Score
from normlab.stages import counted
from normlab.tasks.base import Batch, Draw, Task, spread, step_by_step
from normlab.tasks.losses import label_smoothed_cross_entropy, log_probabilities


@dataclass(frozen=True)
class LengthChange:
    """The step at which training switches to another `max_length`, or None for both if it does not.

    Instead of `step`, `after` can be set: the share of all `steps` before the change (BERT: 0.9).
    """

    step: int | None
    max_length: int | None
    after: float | None = None
    steps: int | None = None

    def __post_init__(self):
        if self.after is not None and self.steps is not None and self.step is None:
            object.__setattr__(self, "step", int(self.after * self.steps + 1e-9) + 1)
        if (self.step is None) != (self.max_length is None):
            raise UserError(
                f"task.length_change.step={self.step} and task.length_change.max_length="
                f"{self.max_length}: set both or neither"
            )


SCORED = Draw(0, 0)  # the draw of the scored examples, which are the same in every run


class DocumentBatches(Batches):
    """Training batches of documents, whose `max_length` may change once during training.

    Epochs keep counting when the length changes, so that masks do not repeat. Raises UserError if
    no batches can be made, also with the later `max_length`.
    """

    def __init__(self, task: "DocumentTask", shard: Shard, seed: int):
        later, self._drawn = task.length_change, 0
        self._change_at = math.inf if later.step is None else (later.step - 1) * task.accumulate

        def draw(epoch: int) -> Draw:
            return Draw(seed, epoch, later.max_length if self._drawn > self._change_at else None)

        super().__init__(**task.plan(shard, seed, draw))
        if later.step is not None:
            try:
                task.calibration_batches(shard, seed)  # plans an epoch of the later length
            except UserError as error:
                problem, _, _ = str(error).partition(";")
                raise UserError(
                    f"task.length_change.max_length={later.max_length} is not possible: {problem}; "
                    "change it, or the batch size (batch_size, max_tokens)"
                ) from error

    def __next__(self) -> Any:
        self._drawn += 1
        if self._drawn == self._change_at + 1:
            self._go_to(self._epoch + (self._index > 0), 0)
        return super().__next__()

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": self._drawn, **super().state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._drawn = state["drawn"]
        super().load_state_dict(state)


@dataclass(kw_only=True, eq=False)
class DocumentTask(Task):
    """Base class of language modelling on documents.

    Attributes:
        corpus: where the documents come from.
        vocab_size, pieces, lowercase: see `DocumentTokenizer.train`.
        max_length: maximum number of tokens per training example, including special tokens.
        eval_max_length: the same for validation and test. None means the largest in training.
        length_change: when to switch training to another `max_length`.
        accumulate: micro-batches per step, needed to convert `length_change.step` to batches.
    """

    corpus: DocumentCorpus
    vocab_size: int
    pieces: Pieces
    lowercase: bool
    max_length: int
    eval_max_length: int | None
    length_change: LengthChange
    accumulate: int
    causal: ClassVar[bool]

    def __post_init__(self):
        check_vocab_size(self.vocab_size, SPECIALS)
        self.longest = max(self.max_length, self.length_change.max_length or 0)
        self.eval_limit = self.eval_max_length or self.longest
        self._examples = lru_cache(maxsize=4)(self.examples)

    @abstractmethod
    def examples(self, split: str, draw: Draw, limit: int) -> Any:
        """Return the examples of a draw (an object with `lengths`), up to `limit` tokens each."""

    def drawn(self, split: str, draw: Draw | None = None) -> Any:
        """Return the examples of a draw, or the scored examples if `draw` is None."""
        limit = self.eval_limit if draw is None else draw.limit or self.max_length
        return self._examples(split, draw or SCORED, limit)

    @abstractmethod
    def blind_sums(self, split: str) -> dict[str, float]:
        """Return the `score_sums` of a split for a model that predicts the targets' frequencies."""

    @cached_property
    def data(self) -> PreparedDocuments:
        """The tokenized corpus, prepared on first use."""
        return prepare_documents(
            self.corpus, vocab_size=self.vocab_size, pieces=self.pieces, lowercase=self.lowercase
        )

    @property
    def splits(self) -> Mapping[str, Any]:
        return self.data.splits

    def describe(self) -> dict[str, Any]:
        draws = {**dict.fromkeys(self.splits), "train": Draw(0, 0)}
        return {
            **self.data.description,
            "examples": {split: len(self.drawn(split, d)) for split, d in draws.items()},
            "padding_share": self.padding_share(),
        }

    def checksums(self) -> Mapping[str, Any]:
        return self.data.description["checksums"]

    def vocabulary(self) -> dict[str, str]:
        return self.data.vocabulary()

    def restore(self, vocabulary: Mapping[str, str], description: Mapping[str, Any]) -> None:
        self.data = PreparedDocuments.restored(vocabulary, {**description})

    def spec(self) -> Text:
        return Text(
            vocab=len(self.data.tokenizer),
            pad_id=DocumentTokenizer.pad_id,
            longest=self.longest_fed(0),
            causal=self.causal,
        )

    def longest_fed(self, max_positions: int) -> int:
        return max(self.longest, self.eval_limit)

    def lengths(self, split: str, draw: Draw | None = None) -> np.ndarray:
        return self.drawn(split, draw).lengths[:, None]

    def train_batches(self, shard: Shard, seed: int) -> DocumentBatches:
        return DocumentBatches(self, shard, seed)

    def calibration_batches(self, shard: Shard, seed: int) -> Batches:
        final = self.length_change.max_length
        return Batches(**self.plan(shard, seed, lambda epoch: Draw(seed, epoch, final)))

    def baselines(self) -> dict[str, float]:
        return {name: score.value for name, score in self.scores(self.blind_sums("test")).items()}


@dataclass(frozen=True, kw_only=True)
class WindowBatch(Batch):
    """Windows of text as tensors.

    `tgt_out` holds the token that follows each of the `real_tokens`.
    """

    ids: Int[Tensor, "B P"]
    real_tokens: Tokens
    tgt_out: Int[Tensor, "N"]
    characters: Tensor


@dataclass(kw_only=True, eq=False)
class LanguageModeling(DocumentTask):
    """Causal language modelling.

    Attributes:
        one_by_one: number of test windows that are also scored one token at a time.
    """

    one_by_one: int
    causal = True
    sum_shapes: ClassVar[Mapping[str, tuple[int, ...]]] = {
        "tokens": (),
        "nll": (),
        "characters": (),
    }

    def examples(self, split: str, draw: Draw, limit: int) -> Windows:
        return text_windows(self.split(split), max_length=limit)

    def collate(
        self, split: str, indices: np.ndarray, draw: Draw | None = None, *, padding: float = 0.0
    ) -> WindowBatch:
        windows = self.drawn(split, draw)
        text = windows.batch(self.split(split), indices, padding=padding)
        valid = torch.from_numpy(text.valid)
        tgt_out = torch.from_numpy(text.next_ids)[valid]
        return WindowBatch(
            ids=torch.from_numpy(text.ids),
            real_tokens=Tokens.collated(valid),
            tgt_out=tgt_out,
            characters=torch.from_numpy(windows.characters[indices]),
            counts={"loss": len(tgt_out)},
            tokens=len(tgt_out),
            positions=text.ids.size,
            padding=text.ids.size - len(tgt_out),
        )

    def logits(self, model: GeneratesText, batch: WindowBatch) -> Tensor:
        """Return the logits `[N, V]` at the real tokens under teacher forcing."""
        return model.project(batch.real_tokens.pack(model(batch.ids, batch.real_tokens)))

    def losses(self, model: GeneratesText, batch: WindowBatch) -> dict[str, Tensor]:
        logits = self.logits(model, batch)
        return {"loss": label_smoothed_cross_entropy(logits, batch.tgt_out, 0.0)[0]}

    @torch.no_grad()
    def stepwise(self, model: GeneratesText, batch: WindowBatch) -> tuple[Tensor, Tensor]:
        state = model.start_decoding(len(batch.ids), max_length=batch.ids.shape[1])
        stepwise = step_by_step(model, batch.ids, state)
        return self.logits(model, batch), batch.real_tokens.pack(stepwise)

    def score_sums(self, model: GeneratesText, batch: WindowBatch) -> dict[str, Tensor]:
        nll = -log_probabilities(self.logits(model, batch), batch.tgt_out)
        row = batch.real_tokens.sequences(batch.ids)
        return {
            "tokens": batch.real_tokens.real(batch.ids).sum(1),
            "nll": torch.bincount(row, nll.double(), len(batch.ids)),
            "characters": batch.characters,
        }

    def blind_sums(self, split: str) -> dict[str, float]:
        data, windows = self.split(split), self.drawn(split)
        counts = np.bincount(data.text.ids, minlength=len(self.data.tokenizer))
        counts[DocumentTokenizer.eos_id] += windows.ends.sum()
        return {
            "tokens": float(counts.sum()),
            "nll": unigram_nll(counts.tolist()),
            "characters": float(windows.characters.sum()),
        }

    def scores(self, sums: Mapping[str, float]) -> dict[str, Score]:
        """Return the loss, the perplexity and the bits per character.

        The end-of-document token is also predicted. It counts as a token, but not as a character.
        """
        tokens, characters = int(sums["tokens"]), round(sums["characters"])
        scores = mean_scores(tokens, loss=sums["nll"])
        scores["perplexity"] = perplexity(sums["nll"], tokens)
        if characters:  # a length bucket may contain only end-of-document tokens
            bits = sums["nll"] / math.log(2)
            scores |= mean_scores(characters, bits_per_character=bits)
        return scores

    @torch.no_grad()
    def evaluate(
        self, model: GeneratesText, split: str, shard: Shard, **options: Any
    ) -> dict[str, Score]:
        """Score a split. On `test`, also score evenly spaced windows one token at a time.

        This adds `one_by_one/loss`, with tokens fed as in generation, and
        `one_by_one/teacher_forced_loss`. The number of windows is at most `limit`.
        """
        scores = super().evaluate(model, split, shard, **options)
        if split != "test" or options.get("batch_size") or not self.one_by_one:
            return scores
        device = next(model.parameters()).device
        sums, tokens = np.zeros(2), 0
        count = min(self.one_by_one, options.get("limit") or self.one_by_one)
        for index in counted(spread(len(self.lengths(split)), count).tolist()):
            batch = self.batch(split, [index]).to(device)
            both = self.stepwise(model, batch)
            sums += [-float(log_probabilities(logits, batch.tgt_out).sum()) for logits in both]
            tokens += batch.tokens
        forced, alone = sums.tolist()
        means = mean_scores(tokens, teacher_forced_loss=forced, loss=alone)
        return scores | {f"one_by_one/{name}": score for name, score in means.items()}

    def generate(
        self, model: GeneratesText, prompt: str, settings: SamplingSettings, *, seed: int
    ) -> str:
        """Continue a prompt with a model in eval mode, or raise UserError if it is too long."""
        tokenizer, eos_id = self.data.tokenizer, DocumentTokenizer.eos_id
        lines = [line.rstrip("\r") for line in prompt.split("\n")]
        if self.pieces == "characters":  # the model has read the text as one line
            lines = [LINE_BREAK.join(lines)]
        ids = [DocumentTokenizer.bos_id]
        ids += [token for sentence, _ in tokenizer.encode(lines) for token in sentence]
        positions = model.max_positions or len(ids) + settings.max_tokens
        if len(ids) > positions:
            raise UserError(
                f"the prompt has {len(ids) - 1} tokens, but the model takes at most "
                f"{positions - 1}; use a shorter prompt"
            )
        special = [token for token in range(DocumentTokenizer.first_ordinary) if token != eos_id]
        options = {"special": special, "eos_id": eos_id, "max_positions": positions, "seed": seed}
        drawn = list(continuation(model, ids, settings, **options))
        # Generation may stop in the middle of a multi-byte character.
        text = tokenizer.decode(ids + drawn).rstrip("\N{REPLACEMENT CHARACTER}")
        return text[len(tokenizer.decode(ids)) :]
