"""Admin's calibration, which sums over ranks, trains two ranks as one process."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from normlab.config.compose import compose, to_dict
from tests.tiny_runs import tiny
from tests.train.trainers import EXACT, largest_difference, on_ranks, trainer_of, weights


def state(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return what a step makes of the weights and statistics of a model."""
    trainer = trainer_of(config, folder)
    trainer.step()
    return weights(trainer.model)


def test_two_ranks_are_one_process(corpus: Path, tmp_path: Path):
    def config(batch_size: int) -> dict[str, Any]:
        # Adam would divide rounding by its own size
        own = ("placement=admin", "norm=bn", "optim=sgd", f"batch_size={batch_size}")
        return to_dict(compose(tiny(corpus, corpus, *EXACT, *own)))

    alone = state(config(8), tmp_path)
    first, second = on_ranks(2, state, config(4), tmp_path)
    assert largest_difference(first, second) == 0
    assert largest_difference(first, alone) < 1e-12
