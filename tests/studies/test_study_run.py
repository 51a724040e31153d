"""A study is carried out, goes on where it was stopped, and says what it cannot do and why."""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest

from normlab import machine
from normlab.commands import _study_queue, _study_words
from normlab.commands import study as command
from normlab.studies import load_study
from normlab.studies import runs as studied
from normlab.train.numerics import NUMERICS
from tests.reports.tables import made

STUDY = """\
# normlab study run tiny
# Two norms, for tests.
document: D0
table: Two norms
claims: [1]
rows: {ln: [norm=ln], bn: [norm=bn]}
grid: {placement: [pre, post]}
columns: [test/bleu]
figures: {ln: {test/bleu: 35.2}}
scales:
  smoke: {overrides: [task=toy], seeds: [1, 2], minutes: 0.5, data: the built-in corpus}
  cpu: {overrides: [task=multi30k], seeds: [1], minutes: 9, data: "Multi30k: data_dir=FOLDER"}
"""
# Stands where the interpreter would: `-m normlab train` copies a record that a test has prepared,
# `-m normlab inspect --data` succeeds unless a file `no_data` says otherwise, and
# `-m normlab.bench.cost` prints `cost.json`, or fails with what `no_cost` says.
STAND_IN = """\
#!/bin/sh
cd {folder}
if [ "$4" = --data ]; then
    echo "$*" >> data_calls
    [ -e no_data ] || exit 0
    echo "some progress" >&2; echo "normlab inspect: $(cat no_data)" >&2; exit 1
fi
if [ "$2" = normlab.bench.cost ]; then
    echo "$*" >> bench_calls
    [ -e no_cost ] && cat no_cost >&2 && exit 1
    cat cost.json; exit 0
fi
echo "$*" >> calls
number=$(wc -l < calls)
if [ -e bad.$number ]; then
    status=$(cat bad.$number)
    [ $status = killed ] && kill -9 $$
    echo "normlab train: no such thing"; exit $status
fi
source=$(grep -nF -- "${{*%% observe.threads=*}}" plan | cut -d: -f1)
target=$(sed -n ${{source}}p targets)
mkdir -p $(dirname $target); cp records/$source $target; echo done
"""


COST = {
    "environment": {"device": "EPYC", "device_type": "cpu", "threads": 2, "precision": "fp32"},
    "data": {"label": "toy", "origin": "here", "sizes": {"test": 5, "train": 2000, "valid": 7}},
    "params": 1000,
    "start_seconds": 4.0,
    "update_seconds": 0.1,
    "updates_measured": 9,
    "busy_share": 1.0,
    "tokens_per_update": 500.0,
    "updates_per_epoch": 250.0,
    "later_share": 1.0,
    "validation_seconds": 2.0,
    "test_seconds": 8.0,
    "save_seconds": 0.0,
    "memory_bytes": 512 * 2**20,
}
"""What a run of 3,000 updates with 12 validations takes: 4 + 300 + 24 + 8 = 336 seconds."""


class Place:
    """A folder with a study, a stand-in for the interpreter, and the records it will find."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "configs" / "study").mkdir(parents=True)
        (folder / "configs" / "study" / "tiny.yaml").write_text(STUDY)
        (folder / "records").mkdir()
        (folder / "cost.json").write_text(json.dumps(COST))
        planned = self.study.planned("smoke")
        for number, run in enumerate(planned, 1):
            bleu = {"ln": 30.0, "bn": 20.0}[run.row] + run.seed / 10
            record = made(run.row, run.seed, {"test/bleu": bleu}, point=run.point)
            (folder / "records" / str(number)).write_text(record.to_json())
        calls = [f"-m normlab train {' '.join(run.overrides)}\n" for run in planned]
        (folder / "plan").write_text("".join(calls))
        targets = [f"{run.folder / 'record.json'}\n" for run in studied.runs_of(planned)]
        (folder / "targets").write_text("".join(targets))

    @property
    def study(self):
        return load_study("tiny", self.folder / "configs")

    def lines(self, name):
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def bad(self, number, status):
        """Let a call of `train`, by its number, end with a status, or killed."""
        (self.folder / f"bad.{number}").write_text(str(status))


@pytest.fixture(scope="module")
def composed():
    """Compose each config once for all tests."""
    compose, configs = studied.composed, {}

    def once(run):
        key = run.overrides, machine.processor_features()  # which decide what precision=auto is
        if key not in configs:
            configs[key] = compose(run)
        return configs[key]

    return once


@pytest.fixture
def place(tmp_path, monkeypatch, composed):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(studied, "composed", composed)
    configs = tmp_path / "configs"
    monkeypatch.setattr(_study_words, "load_study", lambda name: load_study(name, configs))
    monkeypatch.setattr(command, "_RESULTS", tmp_path / "published")
    monkeypatch.setattr(_study_queue, "CONFIG_DIR", configs)
    found = Place(tmp_path)
    program = tmp_path / "python"
    program.write_text(STAND_IN.format(folder=tmp_path))
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    return found


def carry_out(capsys, *argv):
    """Return the status, the lines before the table, the table, and what was complained about."""
    planned = [word for word in argv if word in ("--plan", "--so-far")]
    verb = "plan" if planned else "run"
    words = [word for word in argv if word != "--plan"]
    code = command.main([verb, "tiny", "--processes", "1", *words])
    out, err = capsys.readouterr()
    before, title, table = out.partition("\nTwo norms, ")
    table = f"{title[1:]}{table}"
    return code, before.splitlines(), table, err


def head(before):
    """Return the line that says how many runs there are."""
    return next(line for line in before if line.startswith("tiny at "))


def test_every_run_is_made_and_the_table_shown(place, capsys):
    code, before, table, err = carry_out(capsys)
    assert (code, err) == (0, "")
    assert head(before) == (
        "tiny at scale=smoke: 8 runs (2 rows, 2 points, seeds 1 2), 0 ended, 8 to go"
    )
    assert "8 of 8 runs done" in before
    assert len(place.lines("calls")) == 8 and len(place.lines("data_calls")) == 1
    assert table.startswith("Two norms, on data that is not named (tiny, scale=smoke)\n")
    first = next(line for line in table.splitlines() if line.startswith("ln "))
    assert first.split()[:6] == ["ln", "placement=pre", "30.15", "+-", "0.07", "finished"]
    assert first.endswith("  test/bleu 35.2") and "| " not in table
    _, _, differences = table.partition("difference to ln at the same point, paired by seed\n")
    assert differences.count("-10.00 [-10.00, -10.00], p < 0.001") == 2
    assert not any(line.startswith("ln ") for line in differences.splitlines())


def test_a_damaged_record_is_told_and_made_again(place, capsys):
    carry_out(capsys)
    damaged = sorted((place.folder / "runs").rglob("record.json"))[0]
    damaged.write_text("{")
    code, _, table, err = carry_out(capsys, "--so-far")
    assert (code, err.count("damaged record"), table.count("finished 2/2")) == (0, 1, 3)
    assert err.endswith("; the table goes without it\n")
    code, before, table, err = carry_out(capsys)
    assert code == 0 and "7 ended, 1 to go" in before[0]
    assert err.count("damaged record") == 1 and table.count("finished 2/2") == 4
    assert "; it is made again" in err


@pytest.mark.parametrize("study", ["", "tiny:"])
def test_other_code_is_asked_for_by_name(place, capsys, study):
    carry_out(capsys)
    argv = ("--plan", f"{study}observe.other_code=rerun")
    assert carry_out(capsys, *argv)[1][0].endswith("8 ended, 0 to go")
    for path in (place.folder / "runs").rglob("record.json"):
        record = json.loads(path.read_text())
        record["numerics"] = NUMERICS - 1
        path.write_text(json.dumps(record))
    assert any(line.endswith("0 ended, 8 to go") for line in carry_out(capsys, *argv)[1])


def cells(lines):
    """Return the cells of the rows of a plan."""
    rule = next(n for n, line in enumerate(lines) if line.startswith("\u2500"))
    rows = [re.split(r" {2,}", line.strip()) for line in lines[rule + 1 :]]
    return [row for row in rows if len(row) > 2]


def test_a_plan_says_by_row_what_it_takes_and_runs_nothing(place, capsys):
    code, before, table, _ = carry_out(capsys, "--plan")
    assert (code, table) == (0, "") and place.lines("calls") == []
    assert before[0].startswith("measuring: training 4 configuration(s) for about 2 s each, 1 at")
    assert before[1].strip() == "ln placement=pre: 100 ms per update, 9 updates measured"
    assert cells(before) == [
        ["1", "ln", "4", "4", "3,000", "100", "512 MiB", "0.37"],
        ["2", "bn", "4", "4", "3,000", "100", "512 MiB", "0.37"],
        ["all", "8", "8", "0.75"],
    ]
    assert "data: toy (train 2,000, valid 7, test 5), source: here" in before
    assert "time: 45 min one run after the other" in before
    measured = "measured here (EPYC, 2 thread(s) per run, fp32), memory at most 512 MiB per run"
    assert measured in before
    assert not list((place.folder / "runs").rglob("record.json"))


@pytest.mark.parametrize(
    ("feature", "auto", "other"), [("avx512_bf16", "bf16", "fp32"), ("avx2", "fp32", "bf16")]
)
def test_what_was_measured_is_kept_until_something_changes_what_a_run_costs(
    place, capsys, monkeypatch, feature, auto, other
):
    monkeypatch.setattr(machine, "processor_features", lambda: frozenset({feature}))
    monkeypatch.setattr(machine, "gpu", lambda: None)
    carry_out(capsys, "--plan")
    assert len(place.lines("bench_calls")) == 4
    for free in (
        *("optim.lr=1e-4", "schedule.warmup=7", "budget.steps=10", f"precision={auto}"),
        *("seeds=5-9", "seeds=1"),
    ):
        lines = carry_out(capsys, "--plan", free)[1]
        assert len(place.lines("bench_calls")) == 4, free
        assert not any("measuring" in line for line in lines)
    assert len(place.lines("data_calls")) == 1, "a plan that is known asks for no data"
    for number, changed in enumerate(("batch_size=9", f"precision={other}", "model.dim=32"), 2):
        carry_out(capsys, "--plan", changed)
        assert len(place.lines("bench_calls")) == 4 * number, changed


def test_a_plan_without_data_has_updates_and_no_hours(place, capsys):
    (place.folder / "no_data").write_text("cannot get Multi30k: no network")
    code, before, table, err = carry_out(capsys, "--plan", "scale=cpu")
    assert (code, table, place.lines("bench_calls")) == (0, "", [])
    assert [row[-3:] for row in cells(before)] == [["-", "-", "-"]] * 2 + [["4", "4", "-"]]
    assert "cannot get Multi30k: no network" in err


def test_where_measuring_fails_the_typed_minutes_stand_in_and_are_marked(place, capsys):
    (place.folder / "no_cost").write_text("a sentence of train has 900 tokens")
    code, before, _, _ = carry_out(capsys, "--plan")
    assert code == 0
    assert any("not measured: a sentence of train has 900 tokens" in x for x in before)


def test_the_commands_of_runs_are_printed_alone_and_nothing_runs(place, capsys):
    assert command.main(["plan", "tiny", "--commands", "optim.betas=[0.9, 0.98]"]) == 0
    commands = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    assert len(commands) == 8 and place.lines("calls") == []
    assert commands[0][:4] == ["normlab", "train", "task=toy", "norm=ln"]
    assert "optim.betas=[0.9, 0.98]" in commands[0] and "observe.study=tiny" in commands[0]


def test_seeds_and_a_part_of_the_grid(place, capsys):
    _, before, table, _ = carry_out(capsys, "seeds=2", "placement=post")
    assert head(before).endswith("2 runs (2 rows, seed 2), 0 ended, 2 to go")
    assert all("seed=2" in call and "placement=post" in call for call in place.lines("calls"))
    assert "placement=pre" not in table
    assert ["ln", "placement=post", "30.20"] in [line.split()[:3] for line in table.splitlines()]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["nope"], "no study 'nope': there are tiny"),
        (["tiny", "scale=huge"], "study tiny has no scale=huge: there are smoke, cpu"),
        (["tiny", "seeds=a,b"], "seeds=a,b: expected numbers, such as seeds=1,2,3"),
        (["tiny", "rows=gn"], "rows: 'gn' is no row of scale=smoke: there are 1 ln; 2 bn"),
        (["tiny", "seeds="], "seeds=: expected numbers"),
        (["tiny", "seeds=1,1"], "ln placement=pre seed=1 and ln placement=pre seed=1 are the same"),
        (["tiny", "placement=mid"], "placement=mid: .* no value mid: there are pre, post"),
        (["tiny", "norm=rms"], "ln placement=pre seed=1 and bn placement=pre seed=1 are the same"),
        (["tiny", "batch_size=0"], "batch_size=0 must be above 0"),
        (["tiny", "--processes", "0"], "processes=0 must be above 0"),
    ],
)
def test_what_does_not_fit_is_named_before_any_run(place, argv, message):
    with pytest.raises(ValueError, match=message):
        command.main(["run", *argv])
    assert place.lines("calls") == []


def test_data_that_cannot_be_had_are_told_with_what_can(place, capsys):
    (place.folder / "no_data").write_text("cannot get Multi30k: no network")
    code, _, table, err = carry_out(capsys, "scale=cpu")
    assert (code, table) == (1, "") and place.lines("calls") == []
    assert err == (
        "normlab: the data of tiny at scale=cpu are not available: cannot get Multi30k: "
        "no network; needed: Multi30k: data_dir=FOLDER; scale=smoke needs the built-in corpus\n"
    )


def test_the_real_command_tells_of_data_that_are_not_there(place, capsys, monkeypatch):
    monkeypatch.undo()
    monkeypatch.chdir(place.folder)
    planned = replace(
        place.study.planned("cpu")[0], overrides=("task=translation", "data_dir=none", "seed=1")
    )
    problem = studied.data_problem(studied.runs_of([planned])[0])
    assert problem is not None and "none" in problem and not problem.startswith("normlab")


def test_a_light_import():
    code = "import sys, normlab.commands.study; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "normlab.studies" in loaded
    assert not {"torch", "hydra", "omegaconf", "normlab.reports.table"} & set(loaded)
