"""The Python interface offers what the command line can do."""

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from omegaconf import DictConfig, OmegaConf
from torch import nn

import normlab
from normlab.any_model.inspect import check_call
from normlab.cli import main
from normlab.config.run_config import to_dict
from normlab.models.seq2seq import Seq2Seq
from normlab.notebook import Records
from normlab.records.record import RunRecord
from normlab.tasks.translation import Translation
from normlab.training.run_folder import RunFolder
from tests.tiny_runs import tiny

INTERFACE = (
    "Tokens UserError compose explain fold_norms inspect inspect_config inspect_run load_records "
    "load_run make_norm swap train"
)


def test_dir_lists_every_public_name():
    assert dir(normlab) == INTERFACE.split()
    assert all(callable(getattr(normlab, name)) for name in dir(normlab))
    with pytest.raises(AttributeError, match="nonsense"):
        normlab.nonsense  # noqa: B018


class Trained(NamedTuple):
    config: DictConfig
    record: RunRecord
    runs: Path


@pytest.fixture(scope="module")
def trained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Return a run of four steps."""
    runs = tmp_path_factory.mktemp("runs")
    config = normlab.compose(tiny(corpus, runs, "norm=bn", "budget.steps=4"))
    return Trained(config, normlab.train(config), runs)


def test_train_returns_the_record_and_does_not_retrain_a_finished_run(trained: Trained):
    record = trained.record
    assert record.outcome.status == "finished"
    assert record.choice("norm") == "bn"
    assert str(record) == f"<{record.run_id}: finished at step 4>"
    assert normlab.train(trained.config) == record  # returned without training


def test_records_are_selected_by_their_options(trained: Trained, tmp_path: Path):
    assert normlab.load_records(trained.runs, norm="bn") == [trained.record]
    assert normlab.load_records(trained.runs, norm="ln") == []
    assert repr(normlab.load_records(tmp_path)) == "0 of 0 runs"


def test_records_convert_to_a_data_frame_and_to_curves(trained: Trained):
    scores, records = trained.record.scores, normlab.load_records(trained.runs)
    frame = records.to_frame("optim.lr")
    assert frame["test/bleu"].tolist() == [scores["test/bleu"].value]
    assert (frame["norm"].item(), frame["optim.lr"].item()) == ("bn", 0.01)
    curves = records.curves()
    assert curves["valid/loss"].dropna().tolist()[-1] == scores["valid/loss"].value


def test_records_can_be_plotted_and_an_unknown_or_empty_figure_raises_an_error(
    trained: Trained, tmp_path: Path
):
    records = normlab.load_records(trained.runs)
    assert records.plot()._repr_svg_().startswith("<?xml")
    assert records.plot().save(tmp_path / "loss.svg").is_file()
    for wrong in ("los", "tid_by_layer"):
        with pytest.raises(
            ValueError, match=r"'los' is not a figure; choose|no run has the values"
        ):
            records.plot(wrong)


def test_records_print_as_a_table_of_at_most_ten_runs(trained: Trained):
    records = normlab.load_records(trained.runs)
    assert "| bn | - |" in records._repr_markdown_()
    columns, row, number = str(records).splitlines()
    named = "task  *norm  *placement  *seed  *status  *test/bleu  *test/chrf"
    assert re.fullmatch(named, columns)
    assert row.split()[:5] == ["translation", "bn", "pre", "1", "finished"]
    assert number == "1 of 1 runs"
    many = str(Records([*zip(records.folders, records, strict=True)] * 37)).splitlines()
    assert len(many) == 12 and many[-1] == "10 of 37 runs"


def test_a_run_is_loaded_with_its_task_and_model(trained: Trained):
    (file,) = trained.runs.rglob("record.json")
    assert json.loads(file.read_text(encoding="utf-8"))["format"] == "normlab.record/3"
    run = normlab.load_run(file.parent)
    assert run.record == trained.record
    assert isinstance(run.task, Translation) and isinstance(run.model, Seq2Seq)
    (line,) = run.task.translate(run.model, ["der Mann sieht den Hund heute."])
    assert isinstance(line, str)
    assert sum(p.numel() for p in run.model.parameters()) == run.record.params


def test_inspect_answers_for_a_run_or_a_config_and_writes_nothing(trained: Trained):
    (file,) = trained.runs.rglob("record.json")
    report = normlab.inspect_run(file.parent, only=["padding"])
    assert [*report] == ["padding"] and str(report) == f"padding: {report['padding']}"
    assert normlab.inspect_config(trained.config, "padding")["padding"].values
    assert not [*trained.runs.rglob("inspect.json")]


def test_an_invalid_subject_or_question_raises_a_clear_error(trained: Trained):
    with pytest.raises(ValueError, match="cannot examine a Linear without its inputs"):
        normlab.inspect(nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"not a str; use normlab\.inspect_run"):
        check_call("runs/mine", None, 4, 128)
    with pytest.raises(ValueError, match=r"'leek' is not a question; choose from .*batch_mates, "):
        normlab.inspect_config(trained.config, only=["leek"])


def test_explain_returns_what_the_command_prints(capsys):
    shown = normlab.explain("batchnorm", "ln")
    assert shown.names == ["bn", "ln"]
    assert main(["explain", "bn", "ln"]) == 0
    assert capsys.readouterr().out == f"\n{shown}\n\nNext: normlab train norm=ln\n"


def test_an_older_config_gets_new_defaults_or_an_error_about_the_missing_key(tmp_path):
    plain = to_dict(normlab.compose(["task=toy", f"runs_dir={tmp_path}"]))
    del plain["observe"]["rank_timeout"], plain["batching"]
    assert RunFolder(OmegaConf.create(plain)).config["observe"]["rank_timeout"] == 30
    del plain["task"]["label_smoothing"]
    with pytest.raises(ValueError, match=r"^task\.label_smoothing is missing$"):
        normlab.train(OmegaConf.create(plain))
    assert not list(tmp_path.rglob("config.yaml"))
