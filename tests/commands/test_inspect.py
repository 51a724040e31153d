import contextlib
import io
import json
import os
import shutil
import sys
from pathlib import Path
from statistics import fmean, stdev

import pytest

from normlab.cli import main
from normlab.commands import inspect as inspect_command
from normlab.config.compose import compose
from normlab.errors import UserError
from normlab.inspection import questions
from normlab.inspection.model import findings
from normlab.inspection.model.inspect_json import FORMAT
from normlab.training import train
from tests.tiny_runs import QUICK, tiny


@pytest.fixture
def config(corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tiny(corpus, tmp_path / "runs", "norm=bn", "observe.log_every=4")


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_inspect_examines_a_config_at_initialization(config, tmp_path, capsys):
    assert main(["inspect", *config, "--only", "gradients"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "norm=bn placement=pre model=tiny seed=1: at initialization" in shown
    sheet = read(tmp_path / "inspect.json")
    assert (sheet["subject"]["run"], sheet["subject"]["step"]) == (None, 0)
    assert sheet["data"]["checksums"]
    answer = sheet["findings"]["gradients"]
    assert answer["applies"] and answer["values"]["layers"]["encoder.0"] > 0
    assert all(answer[part] in shown for part in ("question", "answer"))


def test_the_model_is_named_before_the_first_question_is_asked(config, monkeypatch, capsys):
    shown = []

    def finding_on(*_, **__):
        shown.append(capsys.readouterr().out)
        raise UserError("enough")

    monkeypatch.setattr(findings, "finding_on", finding_on)
    with pytest.raises(UserError, match="enough"):
        inspect_command.main([*config, "--only", "gradients"])
    assert " ".join(shown[0].split()).endswith("model=tiny seed=1: at initialization")


def test_a_wrong_setting_is_an_error_before_torch_is_loaded(monkeypatch):
    monkeypatch.setitem(sys.modules, "normlab.inspection.model.built_model", None)
    with pytest.raises(UserError, match="depth does not exist"):
        inspect_command.main(["depth=24"])


def test_the_printed_sheet_equals_the_file_for_any_order_of_questions(config, tmp_path, capsys):
    assert main(["inspect", *config, "--only", "gradients,outlier"]) == 0
    capsys.readouterr()
    written = (tmp_path / "inspect.json").read_text()
    sheet = json.loads(written)
    assert sheet["format"] == FORMAT == "normlab.inspect/2"
    assert list(sheet["findings"]) == ["gradients", "outlier"]
    assert main(["inspect", *config, "--only", "outlier,gradients", "--out", "b", "--json"]) == 0
    assert capsys.readouterr().out == written == (tmp_path / "b").read_text()


@pytest.fixture(scope="module")
def untrained(corpus, tmp_path_factory):
    """Return the lines that `inspect` prints about an untrained model, and its sheet."""
    folder = tmp_path_factory.mktemp("untrained")
    text = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(text):
        patch.chdir(folder)
        assert main(["inspect", *tiny(corpus, folder / "runs", "norm=bn")]) == 0
    return text.getvalue().splitlines(), read(folder / "inspect.json")["findings"]


def test_a_summary_of_80_columns_lists_questions_worth_a_look_first(untrained):
    shown, asked = untrained
    assert len(shown) < 24 and max(map(len, shown)) <= 80 and "─" not in "".join(shown)
    assert shown[1] == "nothing is broken; worth a look: leak, batch_mates"
    verdicts = [line.split(":")[0].split() for line in shown[2:] if line[:1].strip()]
    assert [row for row in verdicts if row[0] != "fine"][:2] == [
        ["look", "leak"],
        ["look", "batch_mates"],
    ]
    assert asked["leak"]["value"] > asked["leak"]["threshold"] and asked["leak"]["rows"]


def test_questions_that_an_untrained_model_cannot_answer_give_the_reason(untrained):
    _, asked = untrained
    verdicts = {"look", "fine", "does not apply"}
    assert len(asked) == 13 and {each["verdict"] for each in asked.values()} == verdicts
    reasons = {name: each["why_not"] for name, each in asked.items()}
    assert {reasons[name] for name in ("layer_skip", "int8", "statistics")} == {
        "the model is untrained"
    }


def test_questions_chosen_with_only_are_shown_with_their_tables(config, capsys):
    assert main(["inspect", *config, "--only", "gradients,layer_skip"]) == 0
    named = capsys.readouterr().out
    assert named.count("─\n") == 2 and "without each layer?" in named


def test_details_shows_the_tables_of_all_questions(config, capsys, monkeypatch):
    names = ["gradients", "outlier"]
    asked = questions.questions("model", names=names)
    monkeypatch.setattr(
        questions, "questions", lambda *_, **__: asked
    )  # all questions would take longer
    counts = []
    for words in ([], ["--details"], ["--only", ",".join(names)]):
        assert main(["inspect", *config, *words]) == 0
        counts.append(capsys.readouterr().out.count("─\n"))
    assert counts[0] == 0 < counts[1] == counts[2]


@pytest.mark.parametrize(
    "words", [["norm=in", "--only", "leak"], ["--json", "norm=in", "--only", "leak"]]
)
def test_a_broken_model_gives_exit_status_1(words, config, tmp_path, capsys):
    settings = [each for each in config if not each.startswith("norm=")]
    assert main(["inspect", *settings, *words]) == 1
    assert read(tmp_path / "inspect.json")["findings"]["leak"]["verdict"] == "broken"


def test_the_inspection_of_a_run_is_kept_in_its_folder(finished, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(finished, tmp_path / "seed1")
    run_id = read(folder / "record.json")["run_id"]
    assert main(["inspect", str(folder), "--only", "stepwise"]) == 0
    sheet = read(folder / "inspect.json")
    assert (sheet["subject"]["run"], sheet["subject"]["step"]) == (run_id, 12)
    assert f"run {run_id}, step 12" in " ".join(capsys.readouterr().out.split())


def test_a_run_in_a_read_only_folder_is_refused_before_it_is_examined(
    finished, tmp_path, capsys, monkeypatch
):
    folder = shutil.copytree(finished, tmp_path / "seed1")
    monkeypatch.setattr(os, "access", lambda place, mode: place != folder)
    assert main(["inspect", str(folder), "--only", "stepwise"]) == 1
    problem = f"normlab inspect: {folder} cannot be written to; use --out FILE\n"
    assert capsys.readouterr() == ("", problem)
    file = tmp_path / "sheets" / "one.json"
    assert main(["inspect", str(folder), "--only", "stepwise", "--out", str(file)]) == 0
    assert read(file)["subject"]["step"] == 12 and not (folder / "inspect.json").exists()


def test_an_inspection_with_changed_settings_does_not_overwrite_that_of_the_run(
    finished, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(finished, tmp_path / "seed1")
    assert main(["inspect", str(folder), "--only", "stepwise"]) == 0
    sheet = read(folder / "inspect.json")
    assert main(["inspect", str(folder), "norm.eval_stats=batch", "--only", "stepwise"]) == 1
    assert read(folder / "inspect.json") == sheet
    other = read(tmp_path / "inspect.json")
    assert other["subject"]["config"]["norm"]["eval_stats"] == "batch"
    steps = [each["findings"]["stepwise"]["answer"] for each in (sheet, other)]
    assert steps[0] != steps[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "leaks"], "'leaks' is not a question; choose from activations, attention"),
        (["model.dept=3"], "model.dept"),
        (["nowhere"], "nowhere"),
        (["one", "two"], "one does not exist"),
        (["--where", "norm=bn"], "--where selects among runs; pass their folder"),
        (["norm=batch"], "norm=bn and norm=batch are both set"),
    ],
)
def test_invalid_arguments_raise_an_error_and_write_no_sheet(
    config, tmp_path, capsys, arguments, message
):
    assert main(["inspect", *config, *arguments]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "inspect.json").exists()


@pytest.fixture(scope="module")
def several(corpus, tmp_path_factory):
    """Return a folder with seeds 1 and 2 of batch norm and seed 1 of DyT."""
    runs = tmp_path_factory.mktemp("several")
    for norm, seed in (("bn", 1), ("bn", 2), ("dyt", 1)):
        train(compose(tiny(corpus, runs, *QUICK, f"norm={norm}", f"seed={seed}")))
    return runs


@pytest.fixture(scope="module")
def side_by_side(several, tmp_path_factory):
    """Return what `inspect` prints about several runs, and its sheet."""
    text = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(text):
        patch.chdir(tmp_path_factory.mktemp("sheet"))
        only = ["--only", "statistics,saturation,gradients,int8"]
        assert main(["inspect", str(several), *only, "--notes"]) == 0
        return text.getvalue(), read(Path("inspect.json"))


def answers(sheet):
    """Return the answers on each run in a sheet, by norm and seed."""
    subjects = {path: each["subject"] for path, each in sheet["runs"].items()}
    return {
        (of["config"]["choices"]["norm"], of["seed"]): sheet["runs"][path]["findings"]
        for path, of in subjects.items()
    }


def test_several_runs_share_one_sheet_that_covers_them_all(several, side_by_side):
    _, sheet = side_by_side
    assert {str(path.parent) for path in several.rglob("record.json")} == sheet["runs"].keys()
    assert not [*several.rglob("inspect.json")]


def test_a_row_shows_mean_standard_deviation_and_number_of_its_runs(side_by_side):
    shown, sheet = side_by_side
    runs, rows = answers(sheet), sheet["rows"]
    gaps = [runs["bn", seed]["statistics"]["values"]["gap"] for seed in (1, 2)]
    gap = rows["bn"]["train-eval gap"]
    assert gap == {"mean": fmean(gaps), "sd": stdev(gaps), "n": 2}
    assert f"{gap['mean']:.3g} +- {gap['sd']:.2g}" in shown
    rise = runs["dyt", 1]["int8"]["values"]["rise"]["W8A8"]
    assert rows["dyt"]["W8A8"] == {"mean": rise, "sd": None, "n": 1}


def test_rows_of_several_norms_have_only_the_values_that_apply_to_them(side_by_side):
    shown, sheet = side_by_side
    assert set(sheet["rows"]["dyt"]) - set(sheet["rows"]["bn"]) == {"saturated"}
    lines = [line.split() for line in shown.splitlines()]
    assert next(line[:3] for line in lines if line[:1] == ["bn"]) == ["bn", "(2", "seeds)"]
    assert "or not applicable: gradients" in " ".join(shown.split())


def test_where_selects_runs_by_their_settings(several, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ask = ["inspect", str(several), "--only", "saturation", "--out", "sheet"]
    assert main([*ask, "--where", "norm=dyt"]) == 0
    assert read(tmp_path / "sheet")["subject"]["config"]["choices"]["norm"] == "dyt"
    assert main([*ask, "--where", "norm=ln"]) == 1
    assert f"no run with norm=ln in {several}" in capsys.readouterr().err


def test_a_diverged_run_is_refused_before_any_run_is_examined(several, tmp_path, capsys):
    folder = shutil.copytree(several, tmp_path / "copy")
    path = sorted(folder.rglob("record.json"))[0]
    record = read(path)
    record["outcome"]["status"] = "diverged"
    path.write_text(json.dumps(record), encoding="utf-8")
    assert main(["inspect", str(folder), "--out", str(tmp_path / "out")]) == 1
    said = f"{path.parent} diverged at step 12; leave it out with --where status=finished"
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
