"""Placements whose code differs between ranks train on two ranks as in one process."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from normlab.config.compose import compose, to_dict
from tests.tiny_runs import tiny
from tests.train.trainers import EXACT, largest_difference, on_ranks, trainer_of, weights

CHANGES = (
    *("model.encoder_layers=2", "model.decoder_layers=2"),  # MixLN's first is post-norm
    *("optim=sgd", "norm=bn"),  # Adam would divide rounding by its own size
)
PLACEMENTS = {"admin": (), "mixln": (), "rezero": ("norm=none",)}


def states(configs: Mapping[str, Mapping[str, Any]], folder: Path) -> dict[str, Any]:
    """Return what two steps of each config make of the weights and statistics of its model."""
    trainers = {name: trainer_of(config, folder) for name, config in configs.items()}
    for trainer in trainers.values():
        trainer.step()
        trainer.step()
    return {name: weights(trainer.model) for name, trainer in trainers.items()}


def test_two_ranks_are_one_process(corpus: Path, tmp_path: Path):
    """With synced batch norms: the ranks share statistics, gradients and Admin's calibration."""

    def configs(batch_size: int) -> dict[str, Any]:
        common = (*EXACT, *CHANGES, f"batch_size={batch_size}")
        return {
            place: to_dict(compose(tiny(corpus, corpus, *common, f"placement={place}", *own)))
            for place, own in PLACEMENTS.items()
        }

    alone = states(configs(8), tmp_path)
    first, second = on_ranks(2, states, configs(4), tmp_path)
    for place in PLACEMENTS:
        assert largest_difference(first[place], second[place]) == 0, place
        assert largest_difference(first[place], alone[place]) < 1e-12, place
