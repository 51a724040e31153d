"""The table shows the values in the records, and reports runs that it could not use."""

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
    """Return the exit status, standard output and error, and the cells of each row by its name."""
    code = main([*argv, "--markdown"])
    out, err = capsys.readouterr()
    lines = [line.strip("| ").split(" | ") for line in out.splitlines() if line.startswith("| ")]
    rows = [cells for cells in lines if cells[0] not in ("setting", "---")]
    return code, out, err, {cells[0]: cells[1:] for cells in rows}


def test_a_table_has_only_scores_that_runs_have_and_a_note_on_the_scorer(runs, capsys):
    code, out, err, _ = compare(capsys)
    assert (code, err) == (0, "")
    assert "| setting | at | test/bleu | stability |" in out, "no run has a validation loss"
    assert f"scored by: test/bleu {SIGNATURE}" in out
    assert "scale" not in out, "no run chose one"


def test_a_row_is_an_experiment_with_its_mean_standard_deviation_spikes_and_outcome(runs, capsys):
    rows = compare(capsys)[3]
    # Means 31 and sd sqrt(2) by hand; the diverged seed's 1.0 is not averaged in.
    assert [*rows] == ["ln", "bn+ln", "bn"], "the baseline, then the best first"
    ended = "finished 2/2; diverged 0; median spikes 0.5"
    assert rows["ln"] == ["-", "31.00 +- 1.41", ended]
    assert rows["bn"] == ["-", "25.00", "diverged 1/2; median spikes 0"]
    assert rows["bn+ln"][1] == "28.00<br>(-2.00)" and rows["bn+ln"][2].startswith("finished 1/1")


def test_order_puts_the_chosen_rows_right_after_the_baseline(runs, capsys):
    assert [*compare(capsys)[3]] == ["ln", "bn+ln", "bn"], "by default the best row comes first"
    assert [*compare(capsys, "--order", "bn")[3]] == ["ln", "bn", "bn+ln"]
    assert [*compare(capsys, "--baseline", "bn", "--order", "bn+ln")[3]] == ["bn", "bn+ln", "ln"]
    with pytest.raises(ValueError, match=r"--order gn: no such row; available: ln; bn\+ln; bn"):
        main(["--order", "gn"])


def test_where_and_paths_select_runs_and_columns_selects_scores(runs, capsys):
    assert set(compare(capsys, "--where", "norm=bn")[3]) == {"bn", "bn+ln"} - {"bn+ln"}
    folder = runs.run_dir(config(norm="ln"))
    assert compare(capsys, str(folder))[3]["ln"][1] == "30.00"
    twice = [str(folder), str(folder / "record.json"), str(folder.parent)]
    assert compare(capsys, *twice)[3]["ln"][1] == "31.00 +- 1.41"
    out = compare(capsys, "--columns", "test/bleu")[1]
    assert "test/bleu" in out and "valid/loss" not in out
    with pytest.raises(
        ValueError,
        match=r"--columns test/blue: no run has this score\. Did you mean test/bleu\?",
    ):
        main(["--columns", "test/blue"])
    with pytest.raises(ValueError, match="--where norm must have the form KEY=VALUE"):
        main(["--where", "norm"])
    assert {*compare(capsys, "--where", "norm=bn,ln")[3]} >= {"bn", "ln"}


def test_rows_of_one_norm_are_named_by_the_settings_that_differ(runs, capsys):
    small = record(norm="ln", choices={"model": "small"}, model={"dim": 256, "num_heads": 4})
    keep(runs, small, record(norm="gn", batch_size=None, max_tokens=4096, accumulate=4))
    keep(runs, record(norm="ln", optim={"lr": 1e-3, "name": "other"}))
    _, out, _, rows = compare(capsys, "--where", "norm=ln")
    assert {*rows} == {"ln", "ln, learning rate 0.0005", "ln, learning rate 0.001"}
    titles = [line for line in out.splitlines() if line.startswith("**Runs")]
    assert {title.rpartition(", ")[2] for title in titles} == {"model tiny**", "model small**"}
    assert "gn, 4,096 tokens per batch" in compare(capsys)[3]
    # If settings differ together, row names have the fewest that distinguish the rows.
    keep(runs, record(norm="ln", optim={"lr": 2e-3, "name": "third"}, schedule={"warmup": 9}))
    assert "ln, learning rate 0.002" in compare(capsys, "--where", "norm=ln")[3]


def test_each_recipe_has_its_own_table_and_baseline(runs, capsys):
    other = {"budget": {"steps": 3000}, "precision": "bf16", "schedule": {"warmup": 400}}
    long = [record(seed=1, norm=n, bleu=b, **other) for n, b in (("ln", 40.0), ("rms", 41.0))]
    keep(runs, *long)
    _, out, _, rows = compare(capsys)
    assert [*rows] == ["ln", "bn+ln", "bn", "rms"]
    first, second = out.split("**Runs")[1:]
    assert "3,000 steps" in second.splitlines()[0] and "40.00" not in first
    assert "| rms | - | 41.00<br>(+1.00)" in second, "compared with ln of the same recipe"
    # A grid is one table: each norm at each depth.
    grid = {f"{n}{d}": (n, d) for n in ("gn", "rms") for d in (2, 4)}
    for norm, depth in grid.values():
        keep(runs, record(seed=7, norm=norm, model={"depth": depth}))
    rows = compare(capsys, *(f"runs/*-{n}-*" for n in ()), "--where", "seed=7")[1]
    assert rows.count("**Runs") == 1 and "depth 4" in rows


def test_each_row_is_compared_with_the_baseline_and_named_by_what_differs(runs, capsys):
    keep(
        runs,
        *(record(seed=s, norm="rms", bleu=32.0 + s, optim={"lr": 2e-3}) for s in (1, 2)),
    )
    _, out, _, rows = compare(capsys)
    # Gaps of 3 and 2, worked out by hand in `test_comparison`.
    at = "learning rate 0.0005"
    named = ("rms, learning rate 0.002", f"ln, {at}", f"bn+ln, {at}")
    assert {*named} < {*rows} and "NOT ALIKE" not in out
    assert rows[named[0]][1].startswith("33.50 +- 0.71<br>(+2.50 [-3.85, +8.85], p = ")
    assert f"the others are not a fair sample (bn, {at})" in out
    assert f"only seeds 1 are pairs (bn+ln, {at})" in out
    assert next(iter(compare(capsys, "--baseline", "rms")[3])) == named[0]
    with pytest.raises(ValueError, match=r"gn: no such row"):
        main(["--baseline", "gn"])
    keep(runs, record(norm="bn", choices={"placement": "post"}))
    assert next(iter(compare(capsys, "--baseline", "bn")[3])).startswith(("bn pre", "bn post"))


def test_each_task_has_its_own_baseline(runs, capsys):
    values = {"choices": {"task": "multi30k"}, "task": {"corpus": {"size": 9}}}
    for norm, bleu in (("ln", 30.0), ("gn", 29.0)):
        keep(runs, *(record(seed=s, norm=norm, bleu=bleu, **values) for s in (1, 2)))
    tables = compare(capsys)[1].split("**Runs")[1:]
    lines = [[x for x in table.splitlines() if x.startswith("| ")][2:] for table in tables]
    rows = sorted([line.split(" | ")[0] for line in own] for own in lines)
    assert rows == [["| ln", "| bn+ln", "| bn"], ["| ln", "| gn"]]
    (gn,) = (line for own in lines for line in own if line.startswith("| gn"))
    assert "(-1.00)" in gn, "gn is compared with ln of the same task"


def test_the_table_fits_in_eighty_columns(runs, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS")
    for placement in ("pre", "post"):
        values = {"padding": placement, "choices": {"placement": placement}}
        scores = {f"test/{name}_accuracy": Score(0.5, True, 9) for name in ("mlm", "nsp")}
        keep(runs, changed(record(norm="bn", **values), scores=scores))
    assert main([]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "test/mlm_accuracy" in out
    for line in out.splitlines():  # no table has only a column of seeds
        assert line.split()[-1:] != ["seeds"] or len(line.split()) > 2


def test_the_legend_has_at_most_three_lines_unless_notes_is_given(runs, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([]) == 0
    brief = capsys.readouterr().out.splitlines()
    last = next(n for n, line in enumerate(reversed(brief)) if line.startswith("bn+ln"))
    assert 1 <= last <= 3 and brief[-1].endswith("all notes: --notes")
    assert "scored by" not in "".join(brief)
    assert main(["--notes"]) == 0
    whole = " ".join(capsys.readouterr().out.split())
    assert "scored by: test/bleu" in whole and "the others are not a fair sample (bn)" in whole


def test_runs_that_cannot_be_averaged_are_refused_and_other_rows_are_shown(runs, capsys, tmp_path):
    keep(runs, record(seed=3, norm="ln", data={"checksums": {"train": "other"}}))
    code, _, err, rows = compare(capsys)
    assert code == 1 and rows["ln"][-1] == "refused" and rows["bn+ln"][1].startswith("28.00")
    assert "not comparable: data.checksums" in err and err.count("\n") == 1
    shutil.copytree(runs.run_dir(config(norm="bn")), tmp_path / "copy")
    err = compare(capsys, "runs", "copy", "--where", "norm=bn")[2]
    assert "has seed 1 twice; pass each run only once" in err


def test_damaged_runs_and_paths_without_runs_are_reported_and_the_rest_is_shown(
    runs, capsys, tmp_path
):
    (tmp_path / "empty").mkdir()
    path = runs.run_dir(config(norm="ln")) / "record.json"
    path.write_text("{")
    code, _, err, rows = compare(capsys, "runs", "nowhere", "empty")
    assert code == 1 and rows["ln"][1] == "32.00"
    assert "nowhere does not exist\n" in err and "empty has no runs\n" in err
    assert str(path) in err and "start the run again" in err


def test_without_any_matching_run_one_error_is_printed(runs, capsys):
    assert main(["elsewhere"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        "normlab: elsewhere does not exist; `normlab list runs` shows the runs in runs/\n",
    )
    main(["--where", "norm=gn"])
    assert "no run that matches --where norm=gn in runs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("where", "hint"),
    [
        ("norm=LayerNorm", "Did you mean --where norm=ln?"),
        ("norm=xn,instance_norm", "Did you mean --where norm=xn,in?"),
        ("norm=gn", "; norm is bn, bn+ln, ln"),
        ("norm=ln,layernorm", "no run has layernorm. Did you mean --where norm=ln?"),
        ("norm=ln,gn", "--where norm=ln,gn: no run has gn; norm is bn, bn+ln, ln"),
    ],
)
def test_an_unmatched_where_suggests_an_option_or_lists_the_known_values(runs, capsys, where, hint):
    assert main(["--where", where]) == 1
    assert hint in capsys.readouterr().err


def test_the_error_for_a_baseline_by_an_alias_suggests_the_option(runs):
    with pytest.raises(ValueError, match=r"--baseline BatchNorm: no such row. Did you mean bn\?"):
        main(["--baseline", "BatchNorm"])


@pytest.mark.parametrize(
    "flags",
    [
        ["--latex", "--markdown"],
        ["--latex", "--samples"],
        ["--latex", "--bootstrap"],
        ["--markdown", "--samples"],
        ["--data-dir", "."],
    ],
)
def test_flags_that_would_be_ignored_are_refused(flags):
    with pytest.raises(ValueError, match="; omit "):
        main(flags)
