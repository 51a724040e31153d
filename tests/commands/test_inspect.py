import json
import shutil

import pytest

from normlab.cli import main
from normlab.inspect.model import FORMAT
from tests.tiny_runs import tiny


@pytest.fixture
def config(corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tiny(corpus, tmp_path / "runs", "norm=bn", "observe.log_every=4")


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_config_is_examined_at_its_first_values(config, tmp_path, capsys):
    assert main(["inspect", *config, "--only", "gradients,outlier"]) == 0
    shown = capsys.readouterr().out
    assert "norm=bn placement=pre model=tiny seed=1: at initialization" in shown
    sheet = read(tmp_path / "inspect.json")
    assert sheet["format"] == FORMAT == "normlab.inspect/1"
    assert (sheet["subject"]["run"], sheet["subject"]["step"]) == (None, 0)
    assert sheet["data"]["checksums"]
    assert list(sheet["examinations"]) == ["gradients", "outlier"]
    found = sheet["examinations"]["gradients"]
    assert found["applies"] and found["figures"]["layers"]["encoder.0"] > 0
    assert all(found[part] in " ".join(shown.split()) for part in ("question", "answer"))
    written = (tmp_path / "inspect.json").read_text()
    assert main(["inspect", *config, "--only", "outlier,gradients", "--out", "b", "--json"]) == 0
    assert capsys.readouterr().out == written == (tmp_path / "b").read_text()


def test_a_run_keeps_its_sheet_and_changes_make_another(finished, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(finished, tmp_path / "seed1")
    run_id = read(folder / "record.json")["run_id"]
    assert main(["inspect", str(folder), "--only", "stepwise"]) == 0
    sheet = read(folder / "inspect.json")
    assert (sheet["subject"]["run"], sheet["subject"]["step"]) == (run_id, 12)
    assert f"run {run_id}, step 12" in " ".join(capsys.readouterr().out.split())
    assert main(["inspect", str(folder), "norm.eval_stats=batch", "--only", "stepwise"]) == 0
    assert read(folder / "inspect.json") == sheet
    other = read(tmp_path / "inspect.json")
    assert other["subject"]["config"]["norm"]["eval_stats"] == "batch"
    steps = [each["examinations"]["stepwise"]["answer"] for each in (sheet, other)]
    assert steps[0] != steps[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "leaks"], "no question 'leaks'; choose from activations, attention"),
        (["model.dept=3"], "model.dept"),
        (["nowhere"], "nowhere"),
        (["one", "two"], "one run at a time"),
        (["norm=batch"], "norm=bn and norm=batch are both given"),
    ],
)
def test_what_does_not_exist_is_named_and_nothing_is_written(
    config, tmp_path, capsys, arguments, message
):
    assert main(["inspect", *config, *arguments]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "inspect.json").exists()
