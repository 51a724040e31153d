"""Trains a transformers language model after its norms have been swapped, and saves it."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from torch.func import functional_call

from normlab.any_model.batches.example import message_of
from normlab.any_model.loading.load import accepted, load_with_tokenizer, tokenized
from normlab.any_model.surgery.swapped import Swapped
from normlab.any_model.tracing.class_names import causality_by_name
from normlab.any_model.tracing.norm_modules import eps_of, is_norm
from normlab.errors import UserError
from normlab.stages import Stage, say

EPS = 1e12
"""With this eps, and gains multiplied by sqrt(eps), a layer or RMS norm no longer divides."""
_MASKED = 0.15  # the share of tokens that a masked language model predicts
_LARGEST_CHANGE = 1e-3  # the largest relative RMS difference allowed between the two models' logits
MaskedBatch = dict[str, Tensor]


class LanguageModel:
    """A language model in float32, with batches for its own loss (next-token or masked-token).

    `place` is a folder or a Hugging Face id. Raises UserError if it cannot be loaded or used.
    """

    def __init__(self, place: str, *, trust: bool) -> None:
        self.model, self.tokenizer, self.folder, self.note = load_with_tokenizer(place, trust=trust)
        self.trust, self.kind = trust, type(self.model).__name__
        from transformers.models.auto import modeling_auto as auto

        self.masked = self.kind in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values()
        names = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
        causal = self.kind in names or causality_by_name(self.kind) is True
        if self.model.config.is_encoder_decoder or not (self.masked or causal):
            raise UserError(
                f"{place} is a {self.kind}, which has no loss on text; use a causal or masked "
                "language model, such as GPT2LMHeadModel or BertForMaskedLM"
            )
        if self.tokenizer is None or (self.masked and self.tokenizer.mask_token_id is None):
            raise UserError(f"{place} has no tokenizer{' with a mask token' * self.masked}")
        self.tokenizer.padding_side = "right"
        ids = torch.ones(2, 8, dtype=torch.long)
        ids[1, -1] = 2
        with torch.no_grad():
            earlier = self.model.float()(ids).logits[:, :-1]
        if not self.masked and _logits_change(*earlier) > 1e-5:
            raise UserError(f"{place}: {self.kind} sees later tokens, so its loss is meaningless")

    def batches(self, lines: list[str], seed: int) -> Iterator[MaskedBatch]:
        """Yield batches of lines. Tokens that are not to be predicted have the label -100.

        Batches without a token to predict are left out.
        """
        generator = torch.Generator().manual_seed(seed)
        for encoded in tokenized(self.tokenizer, lines):
            ids, predicted = encoded["input_ids"], self._predictable(encoded)
            if self.masked:
                predicted &= torch.rand(ids.shape, generator=generator) < _MASKED
                encoded["input_ids"] = ids.masked_fill(predicted, self.tokenizer.mask_token_id)
            batch = {**accepted(self.model, encoded), "labels": ids.masked_fill(~predicted, -100)}
            if self.predicted(batch):
                yield batch

    def shuffled(self, lines: list[str], seed: int) -> Iterator[MaskedBatch]:
        """Yield batches forever, with the lines in a new random order in each epoch.

        Raises UserError if no line has a token that can be predicted.
        """
        if not any(self._count(self._predictable(x)) for x in tokenized(self.tokenizer, lines)):
            raise UserError("the lines to train on have no token to predict; use longer lines")
        generator = torch.Generator().manual_seed(seed)
        for epoch in count(seed):
            order = torch.randperm(len(lines), generator=generator).tolist()
            yield from self.batches([lines[i] for i in order], epoch)

    def predicted(self, batch: MaskedBatch) -> int:
        """Return the number of tokens to predict."""
        return self._count(batch["labels"] != -100)

    def _predictable(self, encoded: Mapping[str, Tensor]) -> Bool[Tensor, "B P"]:
        """Return a mask of the real tokens. A masked model predicts no special tokens."""
        real = encoded["attention_mask"] == 1
        return real & (encoded["special_tokens_mask"] == 0) if self.masked else real

    def _count(self, predicted: Bool[Tensor, "B P"]) -> int:
        """Count tokens to predict. A causal model cannot predict the first token of a row."""
        return int(predicted[:, not self.masked :].sum())

    @torch.no_grad()
    def loss(self, model: Any, batches: Iterable[MaskedBatch]) -> float:
        """Return a model's mean loss per predicted token."""
        pairs = [(self.predicted(batch), float(model(**batch).loss)) for batch in batches]
        if not pairs:
            raise UserError("the held-out lines have no token to predict; use longer lines")
        return sum(n * loss for n, loss in pairs) / sum(n for n, _ in pairs)


@dataclass(frozen=True)
class Adaptation:
    """How to train: the number of steps, the learning rate, and whether to train `everything`.

    `taper` is the number of steps over which the new norms replace the old ones (see `adapt`).
    """

    steps: int
    lr: float
    everything: bool = False
    taper: int = 0


def adapt(
    model: Any, original: nn.Module, batches: Iterator[MaskedBatch], adaptation: Adaptation
) -> int:
    """Train the new norms, or all weights, with AdamW. Return the number of trained weights.

    During the first `taper` steps, each norm outputs `(1 - a) old + a new`, where the old norm is
    the one in the `original` model and a rises from 0 to 1. The learning rate warms up over a tenth
    of the steps and decays linearly to 0; for new gains and DyT's alpha, it is multiplied by their
    initial RMS. There is no weight decay and no dropout.

    Raises UserError if the loss is no longer finite.
    """
    swapped = {path: m for path, m in model.named_modules() if isinstance(m, Swapped)}
    steps, lr = adaptation.steps, adaptation.lr
    groups = _trained(model, swapped, lr, everything=adaptation.everything)
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda done: min(1.0, 10 * (done + 1) / steps) * (1 - done / steps)
    )
    a = 1.0

    def mix(old: nn.Module, _: nn.Module, args: Any, kwargs: dict[str, Any], y: Tensor) -> Tensor:
        return y if a == 1 else torch.lerp(old(*args, **kwargs), y, a)

    with ExitStack() as hooks:
        for path, new in swapped.items():
            hook = new.register_forward_hook(
                partial(mix, original.get_submodule(path)), with_kwargs=True
            )
            hooks.callback(hook.remove)
        for step in range(1, steps + 1):
            a = min(1.0, step / (adaptation.taper + 1))
            loss = model(**next(batches)).loss
            if not loss.isfinite():
                raise UserError(f"the loss is {loss} at step {step}; lower --lr, now {lr:g}")
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            rate.step()
            say(Stage("step", step, steps))
    return sum(weight.numel() for group in groups for weight in group["params"])


@torch.no_grad()
def _trained(
    model: Any, swapped: Mapping[str, Swapped], lr: float, *, everything: bool
) -> list[dict[str, Any]]:
    """Return the optimizer's parameter groups: one per weight to train, with its learning rate."""
    news = {weight: name for m in swapped.values() for name, weight in m.named_parameters()}
    groups: list[dict[str, Any]] = []
    for weight in model.parameters():
        if weight.requires_grad_(everything or weight in news).requires_grad:
            scale = news.get(weight) in ("weight", "norm.alpha")
            size = float(weight.detach().square().mean().sqrt()) if scale else 1.0
            groups.append({"params": [weight], "lr": lr * size})
    return groups


def save(
    model: Any, language: LanguageModel, batch: MaskedBatch, out: Path, *, keep: bool
) -> float:
    """Save a model whose norms were swapped for `none`, under its original class, with a tokenizer.

    The eps in the config becomes `EPS`. The saved model is loaded again to check it. The folder is
    moved to `out` if `keep` is set, and deleted otherwise. Returns the relative RMS difference
    between the logits of the saved and the passed model for the batch.

    Raises UserError, and leaves no files, if the class cannot express the model.
    """
    from transformers import AutoTokenizer

    values, config = _weights(model, language.model), language.model.config
    eps = {name: value for name, value in config.to_dict().items() if "norm_eps" in name}
    with TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as temporary:
        folder = Path(temporary, out.name)
        config.update(dict.fromkeys(eps, EPS))
        try:
            language.model.save_pretrained(folder, state_dict=values)
        except Exception as error:  # transformers raises exceptions of any class
            raise UserError(f"--out {out} cannot be written: {message_of(error)}") from error
        finally:
            config.update(eps)
        tokenizer = AutoTokenizer.from_pretrained(language.folder, trust_remote_code=language.trust)
        tokenizer.save_pretrained(folder)
        reloaded, *_ = load_with_tokenizer(str(folder), trust=language.trust)
        for path, new in model.named_modules():
            if isinstance(new, Swapped) and eps_of(reloaded.get_submodule(path)) != EPS:
                raise UserError(
                    f"--out: {path} of {language.kind} does not read its eps from config.json"
                )
        inputs, real = (
            {k: x for k, x in batch.items() if k != "labels"},
            batch["attention_mask"] > 0,
        )
        change = _logits_change(reloaded(**inputs).logits[real], model(**inputs).logits[real])
        if not change <= _LARGEST_CHANGE:
            raise UserError(f"--out: the logits of the saved model differ by {change:.1g}")
        if keep:
            folder.rename(out)
    return change


def _weights(model: nn.Module, original: nn.Module) -> dict[str, Tensor]:
    """Return the weights with which the original class computes the same outputs at eps = `EPS`.

    Gains are multiplied by sqrt(EPS), because `sqrt(EPS) gain (x - mean) / sqrt(var + EPS)` equals
    `gain (x - mean)` up to a relative error of var / (2 EPS). Raises UserError if a norm has not
    been swapped.
    """
    values = model.state_dict()
    for path, old in original.named_modules(remove_duplicate=False):
        if is_norm(old):
            new = model.get_submodule(path)
            if not isinstance(new, Swapped):
                raise UserError(
                    f"--out: {path} must also be swapped, because all norms share one eps"
                )
            x = torch.randn(1, 2, len(new.weight)).movedim(-1, new.axis)
            zeros = {name: torch.zeros_like(weight) for name, weight in old.named_parameters()}
            plus = float(functional_call(old, zeros, x).any())  # Gemma's gain is 1 + weight
            values[f"{path}.weight"] = new.weight * EPS**0.5 - plus
    return values


@torch.no_grad()
def _logits_change(y: Tensor, other: Tensor) -> float:
    """Return RMS(y - other) / RMS(other)."""
    return float((y - other).square().mean().sqrt() / other.square().mean().sqrt())
