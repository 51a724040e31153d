"""The Python interface: everything on the command line can be imported."""

import json
import re
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from torch import nn

import normlab
from normlab.cli import main
from normlab.config.compose import to_dict
from normlab.models.seq2seq import Seq2Seq
from normlab.notebook import Records
from normlab.tasks.translation import Translation
from normlab.training.run_folder import RunFolder
from tests.tiny_runs import tiny

INTERFACE = (
    "Tokens UserError compose explain fold_norms inspect load_records load_run make_norm swap train"
)


def test_every_public_name_is_found():
    assert dir(normlab) == INTERFACE.split()
    assert all(callable(getattr(normlab, name)) for name in dir(normlab))
    with pytest.raises(AttributeError, match="nonsense"):
        normlab.nonsense  # noqa: B018


def test_a_run_from_compose_to_records(corpus: Path, tmp_path: Path):
    config = normlab.compose(tiny(corpus, tmp_path, "norm=bn", "budget.steps=4"))
    record = normlab.train(config)
    assert record.outcome.status == "finished"
    assert record.choice("norm") == "bn"
    assert normlab.train(config) == record  # again, and at once
    assert normlab.load_records(tmp_path, norm="bn") == [record]
    assert normlab.load_records(tmp_path, norm="ln") == []

    found = normlab.load_records(tmp_path)
    frame = found.to_frame("optim.lr")
    assert frame["test/bleu"].tolist() == [record.scores["test/bleu"].value]
    assert (frame["norm"].item(), frame["optim.lr"].item()) == ("bn", 0.01)
    curves = found.curves()
    assert curves["valid/loss"].dropna().tolist()[-1] == record.scores["valid/loss"].value
    assert found.plot()._repr_svg_().startswith("<?xml")
    assert found.plot().save(tmp_path / "loss.svg").is_file()
    for wrong in ("los", "tid_by_layer"):
        with pytest.raises(ValueError, match=r"no figure 'los': there are|no run has the values"):
            found.plot(wrong)
    assert "| bn | - |" in found._repr_markdown_()
    columns, row, number = str(found).splitlines()
    named = "task  *norm  *placement  *seed  *status  *test/bleu  *test/chrf"
    assert re.fullmatch(named, columns)
    assert row.split()[:5] == ["translation", "bn", "pre", "1", "finished"]
    assert number == "1 of 1 runs"
    many = str(Records([*zip(found.folders, found, strict=True)] * 37)).splitlines()
    assert len(many) == 12 and many[-1] == "10 of 37 runs"
    assert repr(normlab.load_records(tmp_path / "none")) == "0 of 0 runs"
    assert str(record) == f"<{record.run_id}: finished at step 4>"

    (folder,) = (path.parent for path in tmp_path.rglob("record.json"))
    text = (folder / "record.json").read_text(encoding="utf-8")
    assert json.loads(text)["format"] == "normlab.record/3"
    run = normlab.load_run(folder)
    assert run.record == record
    assert isinstance(run.task, Translation)
    assert isinstance(run.model, Seq2Seq)
    (line,) = run.task.translate(run.model, ["der Mann sieht den Hund heute."])
    assert isinstance(line, str)
    assert sum(p.numel() for p in run.model.parameters()) == record.params
    asked = normlab.inspect(folder, only=["padding"])
    assert [*asked] == ["padding"] and str(asked) == f"padding: {asked['padding']}"
    assert normlab.inspect(config, "padding")["padding"].values
    assert len(list(tmp_path.rglob("inspect.json"))) == 0


def test_a_wrong_subject_question_or_norm_is_a_clear_error():
    with pytest.raises(ValueError, match="cannot examine a Linear without its inputs"):
        normlab.inspect(nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"no question 'leek'; choose from .*batch_mates, "):
        normlab.inspect(["norm=bn"], only=["leek"])
    with pytest.raises(ValueError, match="Did you mean bn"):
        normlab.explain("bnn")


def test_explain_returns_what_the_command_prints(capsys):
    shown = normlab.explain("batchnorm", "ln")
    assert shown.names == ["bn", "ln"]
    assert main(["explain", "bn", "ln"]) == 0
    assert capsys.readouterr().out == f"\n{shown}\n\nNext: normlab train norm=ln\n"


def test_an_older_config_gets_new_defaults_or_an_error_that_names_the_missing_key(tmp_path):
    plain = to_dict(normlab.compose(["task=toy", f"runs_dir={tmp_path}"]))
    del plain["observe"]["rank_timeout"], plain["batching"]
    assert RunFolder(OmegaConf.create(plain)).config["observe"]["rank_timeout"] == 30
    del plain["task"]["label_smoothing"]
    with pytest.raises(ValueError, match=r"^task\.label_smoothing is missing$"):
        normlab.train(OmegaConf.create(plain))
    assert not list(tmp_path.rglob("config.yaml"))
