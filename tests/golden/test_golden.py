"""Twenty steps, a validation and a test of every norm give the numbers in the golden file."""

import math

import pytest
import torch

from scripts.golden import GOLDEN, ROUNDING, SETTINGS, TOLERANCE, pairs, parse, render, run
from tests.models.small import NORMS, PLACEMENTS

TABLE = parse(GOLDEN.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def runs_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("golden")


def logs(scores):
    """Return perplexities as nats: exp turns a loss's absolute error into a relative one."""
    return {name: math.log(x) if "perplexity" in name else x for name, x in scores.items()}


@pytest.mark.parametrize(("norm", "place"), pairs())
def test_losses_and_test_scores_match_the_golden_file(norm, place, runs_dir):
    if (norm, place) not in TABLE:
        pytest.skip("has no golden losses yet: python scripts/golden.py writes them")
    found, golden = run(norm, place, runs_dir), TABLE[norm, place]
    # Processors with and without bf16 instructions round differently.
    rel = ROUNDING if place == "precision=bf16" else TOLERANCE
    why = (
        "the mathematics, the data or the order of random draws has changed; where that is meant, "
        "python scripts/golden.py rewrites the file"
    )
    assert found.losses == pytest.approx(golden.losses, rel=rel), why
    assert logs(found.scores) == pytest.approx(logs(golden.scores), rel=rel), why


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
@pytest.mark.parametrize("norm", NORMS)
def test_a_gpu_gives_the_same_losses_as_a_cpu(norm, tmp_path):
    no_draws = "model.dropout=0.0"  # they differ on a GPU
    cpu, gpu = (
        run(norm, "pre", tmp_path / device, no_draws, f"device={device}").losses
        for device in ("cpu", "cuda")
    )
    assert gpu == pytest.approx(cpu, rel=TOLERANCE)


def test_every_golden_entry_belongs_to_an_option_and_its_loss_falls():
    for (norm, place), (losses, scores) in TABLE.items():
        assert norm in NORMS and place in (*PLACEMENTS, *SETTINGS)
        assert len(losses) == 20 + 1 and bool(scores) is (place != "precision=bf16")
        if norm != "prepbn":  # PRepBN becomes another function within these steps
            assert sum(losses[15:20]) < sum(losses[:5])


def test_golden_losses_differ_unless_the_training_is_the_same():
    losses = {run: tuple(golden.losses) for run, golden in TABLE.items()}
    for norm in ("bn", "pn"):  # test settings do not change training
        of_test = losses.pop((norm, "task.test_eval_stats=[batch,recalibrated]"))
        assert of_test == losses.get((norm, "model=bert_tiny"), of_test)
    assert losses["none", "pre"] == losses.pop(("none", "post"))
    assert len(set(losses.values())) == len(losses)


def test_rendering_the_parsed_golden_file_reproduces_it():
    assert render(TABLE) == GOLDEN.read_text(encoding="utf-8")
