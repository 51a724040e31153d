"""Every placement of the folder trains alike however its work is cut, shared out or interrupted."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from normlab.config.compose import compose, to_dict
from normlab.train.checkpoint import load_checkpoint
from normlab.train.loop import Trainer
from tests.models.small import IN_OTHERS, PLACEMENTS, node_of
from tests.tiny_runs import tiny
from tests.train.trainers import (
    EXACT,
    gradients,
    largest_difference,
    on_ranks,
    relative,
    trainer_of,
    weights,
)

CHANGES = (
    *("model.encoder_layers=2", "model.decoder_layers=2"),  # MixLN's first is post-norm
    *("optim=sgd", "batch_size=8"),  # Adam would divide rounding by its own size
)


@cache
def composed(norm: str, corpus: Path) -> dict[str, Any]:
    return to_dict(compose(tiny(corpus, corpus, f"norm={norm}", *EXACT, *CHANGES)))


def config_of(place: str, norm: str, corpus: Path) -> dict[str, Any]:
    """Return a config whose steps have 8 sentences; rezero has no norm, whichever is asked for."""
    norm = norm if norm in IN_OTHERS.get(place, [norm]) else "none"
    return {**composed(norm, corpus), "placement": node_of("placement", place)}


def halved(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of batches of 4."""
    return {**config, "batch_size": 4, "task": {**config["task"], "batch_size": 4}}


def stepped(trainer: Trainer, steps: int) -> Trainer:
    for _ in range(steps):
        trainer.step()
    return trainer


@pytest.mark.parametrize("place", PLACEMENTS)
def test_two_half_batches_are_one_batch(place: str, corpus: Path, tmp_path: Path):
    config = config_of(place, "ln", corpus)
    whole = trainer_of(config, tmp_path)
    halves = trainer_of({**halved(config), "accumulate": 2}, tmp_path)
    halves.model.load_state_dict(whole.model.state_dict())  # Admin's are of one batch's size
    found, expected = (gradients(stepped(trainer, 1).model) for trainer in (halves, whole))
    assert relative(found, expected) < 1e-12


@pytest.mark.parametrize("place", PLACEMENTS)
def test_a_resumed_run_goes_on_bitwise(place: str, corpus: Path, tmp_path: Path):
    config = config_of(place, "bn", corpus)
    config = {**config, "model": {**config["model"], "dropout": 0.1}}
    whole = stepped(trainer_of(config, tmp_path), 1)
    whole.save()
    stepped(whole, 1)
    resumed = trainer_of(config, tmp_path)
    resumed.resume(load_checkpoint(resumed.checkpoints.last))
    stepped(resumed, 1)
    torch.testing.assert_close(weights(resumed.model), weights(whole.model), rtol=0, atol=0)


def states(configs: Mapping[str, Mapping[str, Any]], folder: Path) -> dict[str, Any]:
    """Return what two steps of each config make of the weights and statistics of its model."""
    ended = {name: stepped(trainer_of(config, folder), 2) for name, config in configs.items()}
    return {
        name: {key: value.numpy() for key, value in weights(trainer.model).items()}
        for name, trainer in ended.items()
    }


def test_two_ranks_are_one_process(corpus: Path, tmp_path: Path):
    """With synced batch norms: the ranks share statistics, gradients and Admin's calibration."""
    configs = {place: config_of(place, "bn", corpus) for place in PLACEMENTS}
    alone = states(configs, tmp_path)
    halves = {place: halved(config) for place, config in configs.items()}
    first, second = on_ranks(2, states, halves, tmp_path)
    for place in PLACEMENTS:
        assert largest_difference(first[place], second[place]) == 0, place
        assert largest_difference(first[place], alone[place]) < 1e-12, place
