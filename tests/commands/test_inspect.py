import json
import shutil
from statistics import fmean, stdev

import pytest

from normlab.cli import main
from normlab.config.compose import compose
from normlab.inspection import question
from normlab.inspection.model import FORMAT
from normlab.training import train
from tests.tiny_runs import QUICK, tiny


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


def test_a_model_gets_a_verdict_on_each_question_and_tables_on_request(config, tmp_path, capsys):
    assert main(["inspect", *config]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) < 24 and max(map(len, shown)) <= 80 and "─" not in "".join(shown)
    assert shown[1] == "nothing is broken; worth a look: leak, batch_mates"
    verdicts = [line.split(":")[0].split() for line in shown[2:] if line[:1].strip()]
    assert [row for row in verdicts if row[0] != "fine"][:2] == [
        ["look", "leak"],
        ["look", "batch_mates"],
    ]
    # What an untrained model cannot answer is not asked, but listed with its reason in the sheet.
    asked = read(tmp_path / "inspect.json")["examinations"]
    assert len(asked) == 13 and {each["verdict"] for each in asked.values()} == {
        "look",
        "fine",
        "does not apply",
    }
    untrained = {
        name for name, each in asked.items() if each["why_not"] == "the model is untrained"
    }
    assert {"layer_skip", "int8", "statistics"} <= untrained
    assert asked["leak"]["value"] > asked["leak"]["threshold"] and asked["leak"]["rows"]
    assert main(["inspect", *config, "--only", "gradients,layer_skip"]) == 0
    named = capsys.readouterr().out
    assert named.count("─\n") == 2 and "without each layer?" in named


def test_details_are_the_tables_of_all_questions(config, capsys, monkeypatch):
    names = ["gradients", "outlier"]
    asked = question.questions("model", names=names)
    monkeypatch.setattr(question, "questions", lambda *_, **__: asked)  # all would take longer
    counts = []
    for words in ([], ["--details"], ["--only", ",".join(names)]):
        assert main(["inspect", *config, *words]) == 0
        counts.append(capsys.readouterr().out.count("─\n"))
    assert counts[0] == 0 < counts[1] == counts[2]


@pytest.mark.parametrize(
    "words", [["norm=in", "--only", "leak"], ["--json", "norm=in", "--only", "leak"]]
)
def test_a_model_with_something_broken_ends_with_status_1(words, config, tmp_path, capsys):
    settings = [each for each in config if not each.startswith("norm=")]
    assert main(["inspect", *settings, *words]) == 1
    assert read(tmp_path / "inspect.json")["examinations"]["leak"]["verdict"] == "broken"


def test_a_run_keeps_its_sheet_and_changes_make_another(finished, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(finished, tmp_path / "seed1")
    run_id = read(folder / "record.json")["run_id"]
    assert main(["inspect", str(folder), "--only", "stepwise"]) == 0
    sheet = read(folder / "inspect.json")
    assert (sheet["subject"]["run"], sheet["subject"]["step"]) == (run_id, 12)
    assert f"run {run_id}, step 12" in " ".join(capsys.readouterr().out.split())
    assert main(["inspect", str(folder), "norm.eval_stats=batch", "--only", "stepwise"]) == 1
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
        (["one", "two"], "one: no runs found, no such path"),
        (["--where", "norm=bn"], "--where selects among runs; name their folder"),
        (["norm=batch"], "norm=bn and norm=batch are both given"),
    ],
)
def test_what_does_not_exist_is_named_and_nothing_is_written(
    config, tmp_path, capsys, arguments, message
):
    assert main(["inspect", *config, *arguments]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "inspect.json").exists()


@pytest.fixture(scope="module")
def several(corpus, tmp_path_factory):
    """Return a folder of batch norm's seeds 1 and 2, and of DyT's seed 1."""
    runs = tmp_path_factory.mktemp("several")
    for norm, seed in (("bn", 1), ("bn", 2), ("dyt", 1)):
        train(compose(tiny(corpus, runs, *QUICK, f"norm={norm}", f"seed={seed}")))
    return runs


def test_several_runs_are_shown_side_by_side(several, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    only = ["--only", "statistics,saturation,gradients,int8"]
    assert main(["inspect", str(several), *only, "--notes"]) == 0
    shown = capsys.readouterr().out
    content = read(tmp_path / "inspect.json")
    sheets = content["runs"]
    assert {str(path.parent) for path in several.rglob("record.json")} == sheets.keys()
    assert not [*several.rglob("inspect.json")]
    answers = {
        (each["subject"]["config"]["choices"]["norm"], each["subject"]["seed"]): each[
            "examinations"
        ]
        for each in sheets.values()
    }
    gaps = [answers["bn", seed]["statistics"]["figures"]["gap"] for seed in (1, 2)]
    gap = content["rows"]["bn"]["train-eval gap"]
    assert gap == {"mean": fmean(gaps), "sd": stdev(gaps), "n": 2}
    assert f"{gap['mean']:.3g} +- {gap['sd']:.2g}" in shown
    rise = answers["dyt", 1]["int8"]["figures"]["rise"]["W8A8"]
    assert content["rows"]["dyt"]["W8A8"] == {"mean": rise, "sd": None, "n": 1}
    assert set(content["rows"]["dyt"]) - set(content["rows"]["bn"]) == {"saturated"}
    lines = [line.split() for line in shown.splitlines()]
    assert next(line[:3] for line in lines if line[:1] == ["bn"]) == ["bn", "(2", "seeds)"]
    assert "or not applicable: gradients" in " ".join(shown.split())


def test_runs_are_selected_by_their_settings(several, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ask = ["inspect", str(several), "--only", "saturation", "--out", "sheet"]
    assert main([*ask, "--where", "norm=dyt"]) == 0
    assert read(tmp_path / "sheet")["subject"]["config"]["choices"]["norm"] == "dyt"
    assert main([*ask, "--where", "norm=ln"]) == 1
    assert f"no run with norm=ln below {several}" in capsys.readouterr().err


def test_a_run_that_diverged_is_refused_before_anything_is_examined(several, tmp_path, capsys):
    folder = shutil.copytree(several, tmp_path / "copy")
    path = sorted(folder.rglob("record.json"))[0]
    record = read(path)
    record["outcome"]["status"] = "diverged"
    path.write_text(json.dumps(record), encoding="utf-8")
    assert main(["inspect", str(folder), "--out", str(tmp_path / "out")]) == 1
    said = f"{path.parent}: diverged at step 12; leave it out, with --where status=finished"
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
