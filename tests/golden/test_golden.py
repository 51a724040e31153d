"""Twenty steps, and a validation, lose what they lost when the file was written: all norms."""

import pytest
import torch

from scripts.golden import GOLDEN, MODELS, pairs, parse, render
from scripts.golden import losses as train_losses
from tests.models.small import NORMS, PLACEMENTS

TABLE = parse(GOLDEN.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def runs_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("golden")


@pytest.mark.parametrize(("norm", "place"), pairs())
def test_the_losses_are_the_golden_ones(norm, place, runs_dir):
    if (norm, place) not in TABLE:
        pytest.skip("has no golden losses yet: python scripts/golden.py writes them")
    found = train_losses(norm, place, runs_dir)
    assert found == pytest.approx(TABLE[norm, place], rel=1e-6), (
        "the mathematics, the data or the order of random draws has changed; where that is meant, "
        "python scripts/golden.py rewrites the file"
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
@pytest.mark.parametrize("norm", NORMS)
def test_a_gpu_loses_the_same(norm, tmp_path):
    no_draws = "model.dropout=0.0"  # those of a GPU are others
    cpu, gpu = (
        train_losses(norm, "pre", tmp_path / device, no_draws, f"device={device}")
        for device in ("cpu", "cuda")
    )
    assert gpu == pytest.approx(cpu, rel=1e-6)


def test_every_entry_is_of_an_option_and_falls():
    for (norm, place), values in TABLE.items():
        assert norm in NORMS and place in (*PLACEMENTS, *MODELS)
        assert len(values) == 20 + 1
        if norm != "prepbn":  # it becomes another function within these few steps
            assert sum(values[15:20]) < sum(values[:5])


def test_no_two_norms_lose_the_same():
    normed = {run: values for run, values in TABLE.items() if run[0] != "none"}
    assert len({tuple(values) for values in normed.values()}) == len(normed)
    without = {
        tuple(values)
        for (norm, place), values in TABLE.items()
        if norm == "none" and place in ("pre", "post")
    }
    assert len(without) == 1, "nothing is placed the same way everywhere"


def test_the_file_reads_back_as_it_was_written():
    assert render(TABLE) == GOLDEN.read_text(encoding="utf-8")
