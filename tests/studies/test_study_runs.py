"""What `study run` and `study plan` print, measure, keep and refuse."""

import json
import re
import shlex
import subprocess

import pytest

from normlab.commands import study as command
from normlab.records.code import NUMERICS
from normlab.records.record import BudgetUsed
from normlab.studies import cost
from normlab.studies import study_runs as studied
from normlab.studies.cost import timed
from normlab.studies.load import load_study
from tests.records.examples import changed, record
from tests.studies.queues import bleu, plan


@pytest.fixture(autouse=True)
def wide(place, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")


def printed(capsys, verb, *argv):
    """Return the exit status, the printed lines and the errors."""
    code = command.main([verb, "one", "--processes", "1", *argv])
    out, err = capsys.readouterr()
    return code, out.splitlines(), err


def head(lines):
    """Return the line that says how many runs there are."""
    return next(line for line in lines if line.startswith("one at "))


def test_study_run_makes_every_run_and_prints_the_table(place, capsys):
    plan(place, bleu(3.0))
    code, lines, err = printed(capsys, "run")
    assert (code, err) == (0, "") and len(place.lines("calls")) == 4
    said = "one at scale=smoke: 4 runs (2 rows, 1 point, 2 seeds), 0 ended, 4 to go"
    assert head(lines) == said and "4 of 4 runs done" in lines
    first, _, differences = "\n".join(lines).partition("difference from ln")
    (row,) = [line.split() for line in first.splitlines() if line.startswith("bn ")]
    assert row[:3] == ["bn", "27.00", "+-"] and row[-1] == "2/2"
    assert "-3.00 [-4.27, -1.73]" in differences
    sorted((place.folder / "runs").rglob("record.json"))[0].write_text("{")
    code, lines, err = printed(capsys, "run")
    assert code == 0 and "3 ended, 1 to go" in head(lines) and len(place.lines("calls")) == 5
    assert err.count("damaged record") == 1 and "; remove the file and start the run again" in err
    bn, ln = (
        sorted((place.folder / "runs").rglob(f"*-{norm}-*/seed1"))[0] for norm in ("bn", "ln")
    )
    (bn / "record.json").write_text((ln / "record.json").read_text())
    code, lines, err = printed(capsys, "plan")
    assert head(lines).endswith("3 ended, 1 to go") and "is the record of toy-ln-pre-" in err


def test_runs_made_by_different_code_are_planned_again_with_other_code_rerun(place, capsys):
    plan(place, lambda run: {**bleu(3.0)(run), "code": NUMERICS})
    printed(capsys, "run")
    argv = ("plan", "one:observe.other_code=rerun")
    assert head(printed(capsys, *argv)[1]).endswith("4 ended, 0 to go")
    for path in (place.folder / "runs").rglob("record.json"):
        record = json.loads(path.read_text())
        record["numerics"] = NUMERICS - 1
        path.write_text(json.dumps(record))
    assert head(printed(capsys, *argv)[1]).endswith("0 ended, 4 to go")


def cells(lines):
    """Return the cells of a plan's rows."""
    rule = next(n for n, line in enumerate(lines) if line.startswith("\u2500"))
    return [re.split(r" {2,}", line.strip()) for line in lines[rule + 1 : rule + 3]]


def test_without_finished_runs_a_plan_takes_its_times_from_the_study_file(place, capsys):
    code, lines, _ = printed(capsys, "plan")
    assert code == 0 and place.lines("calls") == []
    assert cells(lines) == [
        [n, row, "2", "2", "~0.5", "~0.02"] for n, row in (("1", "ln"), ("2", "bn"))
    ]
    assert "each run trains for 3,000 steps" in lines
    assert lines[-1].split("; ") == [
        "data: the built-in corpus",
        "time: 2 min 0 s one run after the other",
        "~: estimated in the study's file, because no such run has finished",
        "claims: 1",
        "`normlab claims N` shows how a claim is decided",
    ]


def test_a_plan_takes_its_times_from_finished_runs(place, capsys):
    plan(place, bleu(3.0), seeds=(1, 2, 3))
    printed(capsys, "run", "--publish", "published")
    _, lines, _ = printed(capsys, "plan", "seeds=2-3")
    assert [row[3:] for row in cells(lines)] == [["1", "0.4", "0.01"]] * 2
    assert "min/run: the median of finished runs (2 own on CPU)" in lines[-1]
    _, lines, _ = printed(capsys, "plan", "seeds=3", "--processes", "2")
    assert "time: 50 s one run after the other, or 25 s with 2 in parallel" in lines[-1]
    assert "min/run: the median of finished runs (4 published on CPU)" in lines[-1]


def test_a_plan_divides_its_time_by_at_most_the_number_of_runs(place, capsys):
    one = printed(capsys, "plan", "seeds=1", "rows=ln", "--processes", "3")[1]
    assert "in parallel" not in one[-1]
    three = printed(capsys, "plan", "seeds=1-3", "rows=ln", "--processes", "2")[1]
    assert "time: 1 min 30 s one run after the other, or 45 s with 2 in parallel" in three[-1]
    uneven = [(cost.TimedRuns((), minutes=10.0), 1), (cost.TimedRuns((), minutes=1.0), 2)]
    (time, *_) = cost._time_notes(uneven, 3)
    assert time == "time: 12 min 0 s one run after the other, or 10 min 0 s with 3 in parallel"


def test_run_times_on_another_kind_of_device_are_used_last_and_marked():
    def finished(seconds, device, kind):
        budget = BudgetUsed(100, 50_000, seconds, 2000.0, 0)
        environment = {"device": device, "device_type": kind}
        return changed(record(environment=environment), budget=budget)

    gpu = [finished(60.0, "H100", "cuda") for _ in range(4)]
    cpu = [finished(720.0, "EPYC", "cpu") for _ in range(2)]
    both = timed("cpu", (), [*gpu, *cpu], minutes=5.0)
    assert (both.seconds, both.other) == (720.0, False)
    assert both.machines == ["published on EPYC"] * 2
    assert timed("cpu", gpu, cpu, minutes=5.0).seconds == 720.0, (
        "published runs on this device come before own runs on another"
    )
    assert timed("cuda", [*gpu, *cpu], (), minutes=5.0).seconds == 60.0
    only = timed("cpu", (), gpu, minutes=5.0)
    assert (only.seconds, only.other) == (60.0, True)
    assert timed("cpu", (), (), minutes=5.0).seconds == 300


def test_a_plan_marks_times_on_another_kind_of_device(place, capsys, monkeypatch):
    plan(place, bleu(3.0), seeds=(1, 2))
    printed(capsys, "run", "seeds=1")
    here = cost.settled_device("auto")
    monkeypatch.setattr(cost, "settled_device", lambda device: {"cpu": "cuda"}.get(here, "cpu"))
    _, lines, _ = printed(capsys, "plan", "seeds=1-2")
    assert [row[4:] for row in cells(lines)] == [["*0.4", "*0.01"]] * 2
    marked = "device (own on CPU), because no run has finished on this kind"
    assert marked in lines[-1]


def test_plan_with_commands_prints_only_the_commands_and_runs_nothing(place, capsys):
    _, lines, _ = printed(capsys, "plan", "--commands", "optim.betas=[0.9, 0.98]")
    commands = [shlex.split(line) for line in lines]
    assert len(commands) == 4 and place.lines("calls") == []
    assert commands[0][:4] == ["normlab", "train", "task=toy", "norm=ln"]
    assert "optim.betas=[0.9, 0.98]" in commands[0] and "observe.study=one" in commands[0]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["nope"], "no study 'nope'"),
        (["one", "scale=huge"], "scale=huge is not a scale of one; choose from smoke"),
        (["one", "seeds=a,b"], "seeds=a,b: expected numbers, such as seeds=1,2,3"),
        (["one", "rows=gn"], "rows='gn' is not a row of scale=smoke; choose from 1 ln; 2 bn"),
        (["one", "norm=rms"], "ln seed=1 and bn seed=1 are the same run"),
        (["one", "batch_size=0"], "batch_size=0 must be above 0"),
        (["one", "--processes", "0"], "processes=0 must be above 0"),
        (["one", "--processes", "100000"], "processes=100000 must be at most .*number of cores"),
    ],
)
def test_invalid_arguments_are_refused_before_any_run(place, argv, message):
    with pytest.raises(ValueError, match=message):
        command.main(["run", *argv])
    assert place.lines("calls") == []


def test_missing_data_is_reported_and_no_run_starts(place, capsys, monkeypatch):
    monkeypatch.setattr(studied, "data_problem", lambda run: "no network")
    code, _, err = printed(capsys, "run")
    assert code == 1 and place.lines("calls") == []
    said = "the data of one at scale=smoke are not available: no network; needed: the built-in"
    assert said in err


@pytest.mark.parametrize(
    ("status", "output", "problem"),
    [
        (0, '{"files": 1}', None),
        (1, '{"error": "no folder none"}', "no folder none"),
        (70, "", "its preparation exited with 70: a warning\nin two lines"),
    ],
)
def test_the_error_of_a_data_preparation_is_read_from_its_json_output_if_there_is_any(
    place, monkeypatch, status, output, problem
):
    monkeypatch.undo()

    def prepared(command, **_):
        assert command[-1] == "--json" and "task=toy" in command
        return subprocess.CompletedProcess(command, status, output, "a warning\nin two lines\n")

    monkeypatch.setattr(subprocess, "run", prepared)
    study = load_study("one", place.folder / "configs")
    run = studied.runs_of(study.planned("smoke")[:1])[0]
    assert studied.data_problem(run) == problem
