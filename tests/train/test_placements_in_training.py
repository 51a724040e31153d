"""Placements whose code differs between ranks train on two ranks as in one process."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from normlab.config.compose import compose, to_dict
from normlab.train.loop import Trainer
from tests.models.small import node_of
from tests.tiny_runs import tiny
from tests.train.trainers import (
    EXACT,
    largest_difference,
    on_ranks,
    trainer_of,
    weights,
)

PLACEMENTS = ("admin", "mixln", "rezero")
CHANGES = (
    *("model.encoder_layers=2", "model.decoder_layers=2"),  # MixLN's first is post-norm
    *("optim=sgd", "batch_size=8"),  # Adam would divide rounding by its own size
)


@cache
def composed(norm: str, corpus: Path) -> dict[str, Any]:
    return to_dict(compose(tiny(corpus, corpus, f"norm={norm}", *EXACT, *CHANGES)))


def config_of(place: str, norm: str, corpus: Path) -> dict[str, Any]:
    """Return a config whose steps have 8 sentences; rezero has no norm."""
    norm = "none" if place == "rezero" else norm
    return {**composed(norm, corpus), "placement": node_of("placement", place)}


def halved(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of batches of 4."""
    return {**config, "batch_size": 4, "task": {**config["task"], "batch_size": 4}}


def stepped(trainer: Trainer, steps: int) -> Trainer:
    for _ in range(steps):
        trainer.step()
    return trainer


def states(configs: Mapping[str, Mapping[str, Any]], folder: Path) -> dict[str, Any]:
    """Return what two steps of each config make of the weights and statistics of its model."""
    ended = {name: stepped(trainer_of(config, folder), 2) for name, config in configs.items()}
    return {name: weights(trainer.model) for name, trainer in ended.items()}


def test_two_ranks_are_one_process(corpus: Path, tmp_path: Path):
    """With synced batch norms: the ranks share statistics, gradients and Admin's calibration."""
    configs = {place: config_of(place, "bn", corpus) for place in PLACEMENTS}
    alone = states(configs, tmp_path)
    halves = {place: halved(config) for place, config in configs.items()}
    first, second = on_ranks(2, states, halves, tmp_path)
    for place in PLACEMENTS:
        assert largest_difference(first[place], second[place]) == 0, place
        assert largest_difference(first[place], alone[place]) < 1e-12, place
