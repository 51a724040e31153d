"""The Python interface: what the command line does is importable."""

import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

import normlab
from normlab.config.compose import to_dict
from normlab.models.seq2seq import Seq2Seq
from normlab.tasks.translation import Translation
from normlab.train.run import Run
from tests.tiny_runs import tiny


def test_every_public_name_is_found():
    for name in dir(normlab):
        assert getattr(normlab, name) is not None
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
        with pytest.raises(ValueError, match=r"no figure 'los': there are|no run has its values"):
            found.plot(wrong)
    assert "| bn | - |" in found._repr_markdown_()

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


def test_a_config_of_another_version_gets_new_defaults_or_names_the_key_it_lacks(tmp_path):
    plain = to_dict(normlab.compose(["task=toy", f"runs_dir={tmp_path}"]))
    del plain["observe"]["rank_timeout"], plain["batching"]
    assert Run(OmegaConf.create(plain)).config["observe"]["rank_timeout"] == 30
    del plain["task"]["label_smoothing"]
    with pytest.raises(ValueError, match=r"^task\.label_smoothing is missing$"):
        normlab.train(OmegaConf.create(plain))
    assert not list(tmp_path.rglob("config.yaml"))
