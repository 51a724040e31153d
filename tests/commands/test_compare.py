"""The table says what the records say, and what it could not use."""

import shutil

import pytest

from normlab.commands.compare import main
from normlab.records.record import Score
from normlab.records.store import RunStore
from tests.records.examples import SIGNATURE, changed, config, record


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    store = RunStore("runs")
    for kept in [
        record(seed=1, bleu=30.0, norm="ln"),
        record(seed=2, bleu=32.0, norm="ln", spikes=1.0),
        record(seed=1, bleu=25.0, norm="bn"),
        record(seed=2, bleu=1.0, norm="bn", status="diverged"),
        record(
            seed=1,
            bleu=28.0,
            norm="bn",
            choices={"decoder_norm": "ln"},
            decoder_norm={"option": "ln"},
        ),
    ]:
        store.write(kept, store.run_dir(kept.config))
    return store


def keep(store, *records):
    for kept in records:
        store.write(kept, store.run_dir(kept.config))


def compare(capsys, *argv):
    """Return the status, standard output and error, and the cells of each row by its name."""
    code = main([*argv, "--markdown"])
    out, err = capsys.readouterr()
    lines = [line.strip("| ").split(" | ") for line in out.splitlines() if line.startswith("| ")]
    return code, out, err, {cells[0]: cells[1:] for cells in lines[2:]}


def test_a_row_is_an_experiment_with_mean_spread_spikes_and_outcome(runs, capsys):
    code, out, err, rows = compare(capsys)
    assert (code, err) == (0, "")
    assert "| setting | at | test/bleu | valid/loss | stability |" in out
    # Means 31 and sd sqrt(2) by hand; the diverged seed's 1.0 is not averaged in.
    assert [*rows] == ["ln", "bn+ln", "bn"], "the baseline, then the best first"
    ended = "finished 2/2; diverged 0; spikes 0.5"
    assert rows["ln"] == ["-", "31.00 +- 1.41", "-", ended]
    assert rows["bn"] == ["-", "25.00", "-", "diverged 1/2; spikes 0"]
    assert rows["bn+ln"][1] == "28.00" and rows["bn+ln"][3].startswith("finished 1/1")
    assert f"scored by: test/bleu {SIGNATURE}" in out
    assert "scale" not in out, "no run chose one"


def test_where_paths_and_scores_choose_runs_and_columns(runs, capsys):
    assert set(compare(capsys, "--where", "norm=bn")[3]) == {"bn", "bn+ln"} - {"bn+ln"}
    folder = runs.run_dir(config(norm="ln"))
    assert compare(capsys, str(folder))[3]["ln"][1] == "30.00"
    twice = [str(folder), str(folder / "record.json"), str(folder.parent)]
    assert compare(capsys, *twice)[3]["ln"][1] == "31.00 +- 1.41"
    out = compare(capsys, "--columns", "test/bleu")[1]
    assert "test/bleu" in out and "valid/loss" not in out
    with pytest.raises(ValueError, match=r"--columns test/blue: .*\. Did you mean test/bleu\?"):
        main(["--columns", "test/blue"])
    with pytest.raises(ValueError, match="--where norm: expected KEY=VALUE"):
        main(["--where", "norm"])


def test_rows_of_one_norm_have_what_sets_them_apart_in_their_names(runs, capsys):
    small = record(norm="ln", choices={"model": "small"}, model={"dim": 256, "num_heads": 4})
    keep(runs, small, record(norm="gn", batch_size=None, max_tokens=4096, accumulate=4))
    keep(runs, record(norm="ln", optim={"lr": 1e-3, "name": "other"}))
    assert set(compare(capsys, "--where", "norm=ln")[3]) == {
        "ln model=small optim.lr=0.0005",
        "ln model=tiny optim.lr=0.0005",
        "ln model=tiny optim.lr=0.001 optim.name=other",
    }
    assert "gn 4096 tokens" in compare(capsys)[3], "with more than three keys notes name them"


def test_each_row_is_compared_with_the_baseline_and_what_they_differ_in_is_said(runs, capsys):
    keep(
        runs,
        *(record(seed=s, norm="rms", bleu=32.0 + s, optim={"lr": 2e-3}) for s in (1, 2)),
    )
    _, out, _, rows = compare(capsys)
    # Gaps 3 and 2, as `test_comparison` has them by hand.
    named = ("rms optim.lr=0.002", "ln optim.lr=0.0005", "bn+ln optim.lr=0.0005")
    assert {*named} < {*rows} and "NOT ALIKE" not in out
    assert rows[named[0]][1].startswith("33.50 +- 0.71<br>(+2.50 [-3.85, +8.85], p = ")
    assert "the others are not a fair sample (bn optim.lr=0.0005)" in out
    assert "only seeds 1 are pairs (bn+ln optim.lr=0.0005)" in out
    assert next(iter(compare(capsys, "--baseline", "rms")[3])) == named[0]
    with pytest.raises(ValueError, match=r"gn: no such row"):
        main(["--baseline", "gn"])
    keep(runs, record(norm="bn", choices={"placement": "post"}))
    assert next(iter(compare(capsys, "--baseline", "bn")[3])).startswith(("bn pre", "bn post"))


def test_each_task_has_a_baseline_of_its_own(runs, capsys):
    values = {"choices": {"task": "multi30k"}, "task": {"corpus": {"size": 9}}}
    keep(runs, *(record(seed=s, norm=norm, **values) for norm in ("ln", "gn") for s in (1, 2)))
    lines = [line for line in compare(capsys)[1].splitlines() if "| task=" in line]
    assert [line.split(" | ")[:2] for line in lines] == [
        *(["| ln", "task=multi30k"], ["| gn", "task=multi30k"]),
        *(["| ln", "task=toy"], ["| bn+ln", "task=toy"], ["| bn", "task=toy"]),
    ]
    assert "p = " in lines[1], "gn has a difference to ln of its own task"


def test_eighty_columns_are_enough(runs, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS")
    for placement in ("pre", "post"):
        values = {"padding": placement, "choices": {"placement": placement}}
        scores = {f"test/{name}_accuracy": Score(0.5, True, 9) for name in ("mlm", "nsp")}
        keep(runs, changed(record(norm="bn", **values), scores=scores))
    assert main([]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "test/mlm_accuracy" in out


def test_runs_that_cannot_be_averaged_are_refused_and_the_rest_is_shown(runs, capsys, tmp_path):
    keep(runs, record(seed=3, norm="ln", data={"checksums": {"train": "other"}}))
    code, _, err, rows = compare(capsys)
    assert code == 1 and rows["ln"][-1] == "refused" and rows["bn+ln"][1] == "28.00"
    assert "not comparable: data.checksums" in err and err.count("\n") == 1
    shutil.copytree(runs.run_dir(config(norm="bn")), tmp_path / "copy")
    err = compare(capsys, "runs", "copy", "--where", "norm=bn")[2]
    assert "seed 1 is given twice; name each run once" in err


def test_places_without_a_run_and_damage_are_told_and_the_rest_is_shown(runs, capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    path = runs.run_dir(config(norm="ln")) / "record.json"
    path.write_text("{")
    code, _, err, rows = compare(capsys, "runs", "nowhere", "empty")
    assert code == 1 and rows["ln"][1] == "32.00"
    assert "nowhere: no runs found, no such path" in err and "empty: no runs found\n" in err
    assert str(path) in err and "start the run again" in err


def test_nothing_to_show_is_one_message(runs, capsys):
    assert main(["elsewhere"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "normlab: no run below elsewhere; `normlab train` makes one\n")
    main(["--where", "norm=gn"])
    assert "no run that matches --where norm=gn below runs" in capsys.readouterr().err
