"""The conclusions of the demo for different values."""

import pytest
from msgspec.structs import replace

from normlab.demo import Measured, rows, sentences
from normlab.errors import UserError
from normlab.records.record import Outcome
from normlab.records.store import RunStore
from scripts.demo_picture import demo_runs
from tests.reports.handmade import made

FLOORS = {"loss": 4.0, "bleu": 0.1}


def found(name, running=1.0, *, batch=None, training=0.0, evaluation=0.0, bleu=50.0):
    """Return a norm's measurements. If `running` is None, the run has diverged."""
    norm = {"layer norm": "ln", "no norm": "none", "batch norm": "bn"}[name]
    if running is None:
        lost = replace(made(norm, 1), floors=FLOORS, outcome=Outcome("diverged", 50))
        return Measured(name, lost)
    record = replace(made(norm, 1, {"test/bleu": bleu, "test/loss": running}), floors=FLOORS)
    batch = running if batch is None else batch
    return Measured(name, record, running, batch, training, evaluation)


LN, NONE = found("layer norm", 1.4), found("no norm", 1.5)
BN = found("batch norm", 1.6, batch=1.47, training=0.097)


def test_the_conclusion_ranks_norms_by_loss():
    first, second = sentences([LN, NONE, BN])
    assert first == (
        "On unseen sentences the loss is lowest with layer norm (1.40), before no norm (1.50) and "
        "batch norm (1.60)."
    )
    assert "by 9.7 % (layer norm and no norm: 0 %)" in second
    assert "but its loss is 0.13 higher (1.60 instead of 1.47)" in second


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([LN, found("no norm", None), BN], "With no norm training diverged at step 50; on unseen"),
        ([LN, found("no norm", 3.5), BN], "With no norm the loss is not clearly below the loss of"),
        ([LN, NONE, found("batch norm", 1.6, bleu=60.0)], "BLEU is highest with batch norm (60.0"),
        ([LN, NONE, BN._replace(batch=1.7)], "its loss is 0.10 lower"),
        ([LN, NONE, BN._replace(batch=1.601)], "its loss is the same"),
        ([LN, NONE, BN._replace(evaluation=0.05)], "and in evaluation by 5.0 %."),
        ([LN, NONE, BN._replace(training=0.0)], "no sentence's output changes"),
    ],
)
def test_the_sentences_depend_on_the_measured_values(values, said):
    assert said in " ".join(sentences(values))


def test_a_run_that_diverged_has_a_row_without_values():
    table = rows([LN, found("no norm", None), found("batch norm", None)])
    assert table[1] == ["no norm", "diverged", "-", "-", "-", "-"]
    assert table[3][:2] == ["copy the source", "0.1"]
    assert len(sentences([LN, NONE, found("batch norm", None)])) == 1


def test_the_picture_needs_one_run_of_the_demo_per_norm(tmp_path):
    def write(norm, folder):
        of_norm = made(norm, 1)
        config = {**of_norm.config, "observe": {"study": "demo"}}
        RunStore(tmp_path).write(replace(of_norm, config=config), tmp_path / folder / "seed1")

    for norm in ("ln", "none"):
        write(norm, norm)
    with pytest.raises(UserError, match="has no run of the demo with norm=bn; run normlab demo"):
        demo_runs(tmp_path)
    write("bn", "bn")
    assert [run.norm for run in demo_runs(tmp_path)] == ["ln", "none", "bn"]
    write("bn", "deep")
    with pytest.raises(UserError, match="has 2 runs of the demo with norm=bn; pass a folder"):
        demo_runs(tmp_path)
