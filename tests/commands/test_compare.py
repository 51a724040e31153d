"""The table says what the records say, and what it could not use."""

import re
import shutil

import pytest
from msgspec.structs import replace

from normlab.commands import report
from normlab.commands.compare import main
from normlab.records.record import Score
from normlab.records.store import RunStore
from tests.records.examples import SIGNATURE, changed, config, record


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    store = RunStore("runs")
    for kept in [
        record(seed=1, bleu=30.0, norm="ln"),
        record(seed=2, bleu=32.0, norm="ln", spikes=1.0),
        record(seed=1, bleu=25.0, norm="bn"),
        record(seed=2, bleu=1.0, norm="bn", status="diverged"),
        record(seed=1, bleu=28.0, norm="bn", choices={"decoder_norm": "ln"}, decoder="ln"),
    ]:
        store.write(kept, store.run_dir(kept.config))
    return store


def table(capsys, *argv):
    code = main(list(argv))
    out, err = capsys.readouterr()
    lines = [line.split() for line in out.splitlines()]
    rows = {cells[0]: cells for cells in lines if cells[1:2] == ["pre"]}
    return code, out, err, rows


def test_a_row_an_experiment_with_mean_spread_spikes_and_outcome(runs, capsys):
    code, out, err, rows = table(capsys)
    assert (code, err) == (0, "")
    header = "norm placement task batch seeds test/bleu valid/loss spikes outcome tokens/s"
    assert out.split()[: len(header.split())] == header.split()
    # Means 31 and sd sqrt(2) by hand; the diverged seed's 1.0 is not averaged in.
    assert " ".join(rows["ln"]) == "ln pre toy 32 1 2 31.00 +- 1.41 - 0.5 finished 2/2 2000"
    assert " ".join(rows["bn"]) == "bn pre toy 32 1 2 25.00 - 0.0 diverged 1/2 2000"
    assert " ".join(rows["bn+ln"]) == "bn+ln pre toy 32 1 28.00 - 0.0 finished 1/1 2000"
    assert f"scored by: test/bleu {SIGNATURE}" in out
    assert "scale" not in out, "no run chose one"


def test_where_and_paths_choose_runs(runs, capsys):
    assert set(table(capsys, "--where", "norm=bn")[3]) == {"bn"}
    assert set(table(capsys, "--where", "norm=bn", "--where", "seed=2")[3]) == {"bn"}
    folder = runs.run_dir(config(norm="ln"))
    assert table(capsys, str(folder))[3]["ln"][4:6] == ["1", "30.00"]
    assert table(capsys, str(folder.parent))[3]["ln"][4:6] == ["1", "2"]
    twice = [str(folder), str(folder / "record.json"), str(folder.parent)]
    assert table(capsys, *twice)[3]["ln"][4:6] == ["1", "2"]


def test_scores_are_columns_on_request(runs, capsys):
    out = table(capsys, "--score", "test/bleu")[1]
    assert "test/bleu" in out and "valid/loss" not in out
    with pytest.raises(ValueError, match=r"--score test/blue: no run has this .* test/bleu$"):
        main(["--score", "test/blue"])


def test_rows_that_look_alike_say_what_sets_them_apart(runs, capsys):
    for other in [
        record(norm="ln", optim={"lr": 1e-3}),
        record(norm="ln", choices={"model": "small"}, model={"dim": 256, "num_heads": 4}),
    ]:
        runs.write(other, runs.run_dir(other.config))
    out = table(capsys, "--where", "norm=ln")[1]
    rows = [line.split() for line in out.splitlines() if line.split()[1:2] == ["pre"]]
    assert sorted(" ".join(cells[4:6]) for cells in rows) == [
        "model=small optim.lr=0.0005",
        "model=tiny optim.lr=0.0005",
        "model=tiny optim.lr=0.001",
    ]


def beside_baseline(out):
    """Return the lines of the second table by their first words, and its title."""
    title, _, *lines = out.split("\n\n")[1].splitlines()
    return title, {line.split("  ")[0]: line for line in lines[1:]}


def test_a_row_named_like_the_baseline_is_told_by_its_own_value(runs, capsys):
    for norm in ("ln", "rms"):
        other = record(seed=1, norm=norm, bleu=20.0, optim={"lr": 2e-3})
        runs.write(other, runs.run_dir(other.config))
    said = re.search(r"rows differ in optim.lr: .*", table(capsys)[1])
    high, low = sorted(said[0].removeprefix("rows differ in optim.lr: ").split("; "), reverse=True)
    assert "ln optim.lr=0.002" in high and "rms" in high
    assert "ln optim.lr=0.0005" in low and "0.002" not in low


def test_rows_stand_best_first_and_each_beside_the_baseline(runs, capsys):
    for seed in (1, 2):
        other = record(seed=seed, norm="rms", bleu=32.0 + seed, optim={"lr": 2e-3})
        runs.write(other, runs.run_dir(other.config))
    out = table(capsys)[1]
    assert [line.split()[0] for line in out.splitlines()[2:6]] == ["rms", "ln", "bn+ln", "bn"]
    assert "NOT ALIKE: rows differ in optim.lr: 0.002 (rms); 0.0005 (ln, bn+ln, bn)" in out
    title, rows = beside_baseline(out)
    assert title == (
        "test/bleu (higher is better) vs. the baseline ln: row minus baseline, by seed"
    )
    # Gaps 3 and 2, as `test_beside` has them by hand.
    assert " ".join(rows["rms"].split()[1:5]) == "+2.50 [-3.85, +8.85] 2"
    assert rows["rms"].endswith("optim.lr 0.002, the baseline's 0.0005")
    assert rows["bn+ln"].split()[1:4] == ["-2.00", "-", "1"]
    assert rows["bn"].endswith("the others are not a fair sample")
    title, rows = beside_baseline(table(capsys, "--baseline", "rms")[1])
    assert "the baseline rms" in title and "ln" in rows and "rms" not in rows
    with pytest.raises(
        ValueError, match=r"gn: no row of that name; there are 'bn\+ln', 'bn', 'ln', 'rms'"
    ):
        main(["--baseline", "gn"])


def test_seeds_left_out_are_counted_and_named_beside_the_difference(runs, capsys):
    for seed, numerics in enumerate((1, "b", "b"), 1):
        for norm, bleu in (("ln", 30.0), ("rms", 32.0)):
            its = numerics if norm == "rms" else 1
            other = record(seed=seed, norm=norm, bleu=bleu, numerics=its)
            runs.write(other, runs.run_dir(other.config))
    row = beside_baseline(table(capsys)[1])[1]["rms"]
    assert row.split()[1:4] == ["+2.00", "-", "1"]
    assert row.endswith("2 seeds left out: different code (2 3)")


def test_unlike_steps_are_said_in_words_in_markdown_too(runs, capsys):
    for seed in (1, 2):
        other = record(seed=seed, norm="rms", budget={"steps": 150})
        runs.write(other, runs.run_dir(other.config))
    out = table(capsys, "--markdown")[1]
    assert "- NOT ALIKE: rows differ in budget.steps: (absent) (ln, bn+ln, bn); 150 (rms)" in out
    (row,) = [line for line in out.splitlines() if "not paired: budget" in line]
    assert row.split("|")[1:5] == [" rms ", " - ", " - ", " 0 "]


def test_a_score_at_the_untrained_baseline_is_named(runs, capsys):
    for norm, bleu in (("ln", 30.0), ("rms", 0.3)):
        other = replace(record(seed=9, norm=norm, bleu=bleu), floors={"bleu": 0.5})
        runs.write(other, runs.run_dir(other.config))
    out = " ".join(table(capsys, "--where", "seed=9")[1].split())
    assert "NOT CLEAR OF THE UNTRAINED BASELINE: rms: test/bleu 0.3" in out
    assert "BASELINE: ln" not in out


def test_runs_that_never_learned_or_see_the_future_are_marked_in_the_outcome(runs, capsys):
    flat = {"test/loss": Score(6.6, False, 10), "test/bleu": Score(1.0, True, 10, SIGNATURE)}
    for norm, changes in (("ln", {}), ("rms", {"sees_future": ["SeqNorm"]})):
        other = record(seed=9, norm=norm)
        other = replace(other, floors={"loss": 6.67}, scores=flat, **changes)
        runs.write(other, runs.run_dir(other.config))
    out = " ".join(table(capsys, "--where", "seed=9", "--markdown")[1].split())
    assert out.count("| finished 1/1; did not learn 1/1 |") == 1
    assert "| finished 1/1; did not learn 1/1; sees the future |" in out
    assert "sees the future: rms (SeqNorm): " in out


def test_each_task_has_a_baseline_of_its_own(runs, capsys):
    for norm in ("ln", "gn"):
        other = record(norm=norm, choices={"task": "multi30k"}, task={"corpus": {"size": 9}})
        runs.write(other, runs.run_dir(other.config))
    titles = [line for line in table(capsys)[1].splitlines() if " vs. " in line]
    assert sorted(title.split(":")[0].split("baseline ")[1] for title in titles) == [
        "ln multi30k",
        "ln toy",
    ]


def test_eighty_columns_are_enough(runs, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS")
    for placement in ("pre", "post"):
        values = {"padding": placement, "choices": {"placement": placement}}
        scores = {f"test/{name}_accuracy": Score(0.5, True, 9) for name in ("mlm", "nsp")}
        other = changed(record(norm="bn", **values), scores=scores)
        runs.write(other, runs.run_dir(other.config))
    out = table(capsys)[1]
    assert max(map(len, out.splitlines())) <= 80
    assert "test/mlm_accuracy" in out and "tokens/s" in out


def test_rows_scored_in_different_ways_are_named(runs, capsys):
    other = record(norm="rms", bleu=40.0, signature="nrefs:1|tok:none")
    runs.write(other, runs.run_dir(other.config))
    out = table(capsys)[1]
    assert f"test/bleu (ln, bn+ln, bn) {SIGNATURE}" in out
    assert "test/bleu (rms) nrefs:1|tok:none" in out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"numerics": "abc"}, "made by different states of the code"),
        (
            {"environment": {"instruction_set": "AVX2"}},
            "different arithmetic: unknown fp32 AVX2, unknown fp32 unknown",
        ),
    ],
)
def test_runs_of_other_code_or_arithmetic_are_pointed_out(runs, capsys, changes, said):
    assert said not in table(capsys)[1]
    other = record(seed=3, norm="ln", **changes)
    runs.write(other, runs.run_dir(other.config))
    assert said in table(capsys)[1]


def test_runs_that_cannot_be_averaged_are_refused_and_the_rest_is_shown(runs, capsys):
    other = record(seed=3, norm="ln", data={"checksums": {"train": "other"}})
    runs.write(other, runs.run_dir(other.config))
    code, _, err, rows = table(capsys)
    assert code == 1
    assert set(rows) == {"bn", "bn+ln"}
    assert "not comparable: data.checksums" in err and err.count("\n") == 1


def test_a_run_given_twice_under_two_names_is_refused(runs, capsys, tmp_path):
    folder = runs.run_dir(config(norm="ln"))
    shutil.copytree(folder, tmp_path / "copy")
    code, _, err, rows = table(capsys, str(folder), "copy", "runs")
    assert code == 1 and set(rows) == {"bn", "bn+ln"}
    assert f"{folder} and copy are both seed 1 of one experiment" in err
    assert "name the folders to compare, or remove one" in err


def test_a_place_without_a_run_is_told_and_the_rest_is_shown(runs, capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    code, _, err, rows = table(capsys, "runs", "nowhere", "empty")
    assert code == 1 and set(rows) == {"ln", "bn", "bn+ln"}
    assert "nowhere: no run there, no such path" in err and "empty: no run there\n" in err


def test_a_record_given_by_name_that_is_damaged_hides_no_other(runs, capsys):
    path = runs.run_dir(config(norm="ln")) / "record.json"
    path.write_text("[]")
    code, _, err, rows = table(capsys, str(path), str(runs.run_dir(config(norm="bn"))))
    assert code == 1 and set(rows) == {"bn"}
    assert f"{path}: damaged record, the file: expected `object`" in err


def test_a_config_without_choices_is_shown_as_far_as_it_goes(runs, capsys):
    values = config(norm="gn")
    kept = record(norm="gn")
    del values["choices"], values["batch_size"]
    runs.write(changed(kept, config=values), runs.run_dir(kept.config))
    code, out, err, rows = table(capsys)
    assert (code, err) == (0, "") and set(rows) == {"ln", "bn", "bn+ln"}
    assert any(line.split()[:4] == ["-", "-", "-", "-"] for line in out.splitlines())


def test_damage_is_told_and_the_rest_is_shown(runs, capsys):
    path = runs.run_dir(config(norm="ln")) / "record.json"
    path.write_text("{")
    code, _, err, rows = table(capsys)
    assert code == 1
    assert rows["ln"][4:6] == ["2", "32.00"]
    assert str(path) in err and "start the run again" in err


def test_nothing_to_show_is_one_message(runs, capsys):
    code, out, err, _ = table(capsys, "--runs-dir", "elsewhere")
    assert (code, out) == (1, "")
    assert err == "normlab: no run below elsewhere; `normlab train` makes one\n"
    assert "no run that fits below runs" in table(capsys, "--where", "norm=gn")[2]
    assert "below runs_dir=a/b. Did you mean a/b?" in table(capsys, "runs_dir=a/b")[2]
    with pytest.raises(ValueError, match=r"runs_dir=a/b: no study .* Did you mean a/b\?"):
        report.main(["runs_dir=a/b"])


def test_bad_conditions_are_named(runs):
    with pytest.raises(ValueError, match="--where norm: expected KEY=VALUE"):
        main(["--where", "norm"])
    with pytest.raises(ValueError, match="'nrom'; allowed:"):
        main(["--where", "nrom=bn"])


def test_batches_by_tokens_and_accumulation(runs, capsys):
    kept = record(norm="gn", batch_size=None, max_tokens=4096, accumulate=4)
    runs.write(kept, runs.run_dir(kept.config))
    assert " ".join(table(capsys)[3]["gn"][3:7]) == "4 x 4096 tokens"


MLM = {"task": "mlm", "task/corpus": "pydoc"}


def test_the_corpus_is_a_column_where_it_varies_and_a_note_where_it_does_not(runs, capsys):
    for corpus in ("brown", "wikitext2"):
        choices = {**MLM, "task/corpus": corpus}
        kept = record(norm="gn", choices=choices, task={"corpus": {"name": corpus}})
        runs.write(kept, runs.run_dir(kept.config))
    out = table(capsys, "--where", "norm=gn")[1]
    assert out.split()[:5] == ["norm", "placement", "task", "corpus", "batch"]
    assert {line.split()[3] for line in out.splitlines() if line.startswith("gn ")} == {
        "brown",
        "wikitext2",
    }
    assert "also" not in out.split()
    one = table(capsys, "--where", "norm=gn", "--where", "task/corpus=brown")[1]
    assert one.split()[:4] == ["norm", "placement", "task", "batch"]
    assert "corpus: brown" in one.splitlines()
