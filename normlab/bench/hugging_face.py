"""Hugging Face's BERT on the batches of a run: the peer that masked language modelling is timed by.

The model has the run's sizes and is trained as its documentation shows: labels for all positions,
AdamW, fp32. Needs the `transformers` package.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from normlab.bench.clock import Clock
from normlab.bench.train import CountingStream, Interval, Measured, counted_steps
from normlab.tasks.mlm import MaskedBatch, MaskedLanguageModeling
from normlab.train.runtime import Runtime

_IGNORED = -100  # the label of a position that is not to be predicted


@dataclass(kw_only=True)
class HuggingFace(Measured):
    """A training loop of Hugging Face's model."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    stream: CountingStream
    device: torch.device

    def take(self, steps: int, clock: Clock) -> Interval:
        """Take steps and return what they were."""
        return counted_steps(self.step, self.stream, steps, clock)

    def step(self) -> None:
        """Take one step."""
        batch = next(self.stream).to(self.device)
        self.optimizer.zero_grad(set_to_none=True)
        self.model(**inputs(batch)).loss.backward()
        self.optimizer.step()


def inputs(batch: MaskedBatch) -> dict[str, Tensor]:
    """Return a batch as the arguments of `BertForPreTraining`."""
    labels = torch.full_like(batch.ids, _IGNORED)
    row = batch.real // batch.places.shape[1]
    labels[row, batch.places.flatten()[batch.real]] = batch.labels
    return {
        "input_ids": batch.ids,
        "attention_mask": batch.valid.long(),
        "token_type_ids": batch.segments,
        "labels": labels,
        "next_sentence_label": batch.follows,
    }


def start(config: Mapping[str, Any], task: object, runtime: Runtime) -> HuggingFace:
    """Build the model; ValueError where the task is another or the package is missing."""
    if not isinstance(task, MaskedLanguageModeling) or not task.nsp:
        raise ValueError("Hugging Face's BERT is timed on task=mlm with task.nsp=true alone")
    try:
        from transformers import BertConfig, BertForPreTraining
    except ImportError:
        raise ValueError(
            "--peer needs the package transformers: pip install -c constraints.txt transformers"
        ) from None
    sizes, vocab = config["model"], len(task.data.tokenizer)
    bert = BertForPreTraining(
        BertConfig(
            vocab_size=vocab,
            hidden_size=sizes["dim"],
            num_hidden_layers=sizes["num_layers"],
            num_attention_heads=sizes["num_heads"],
            intermediate_size=sizes["ffn_dim"],
            max_position_embeddings=sizes["max_positions"],
            hidden_dropout_prob=sizes["dropout"],
            attention_probs_dropout_prob=sizes["attention_dropout"],
        )
    )
    model = cast("nn.Module", bert).to(runtime.device)
    return HuggingFace(
        name="huggingface fp32",
        config=config,
        vocab=vocab,
        model=model.train(),
        optimizer=torch.optim.AdamW(model.parameters(), lr=config["optim"]["lr"]),
        stream=CountingStream(task.train_batches(runtime.world, config["seed"])),
        device=runtime.device,
    )
