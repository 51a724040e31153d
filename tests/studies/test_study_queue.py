"""A queue of studies completes seeds, makes shared runs only once and stops in time."""

import json
import re
import time

import pytest

from normlab.commands import study as command
from normlab.errors import UserError
from normlab.publishing.published import read
from normlab.studies import process_pool
from normlab.studies import study_runs as studied
from normlab.studies.load import load_study
from tests.studies.queues import bleu, plan, run_queue


def test_runs_that_studies_share_are_made_once_and_published_in_both(place, capsys):
    plan(place, bleu(3.0))
    code, out = run_queue(capsys, "one", "two", "--publish", "results")
    assert code == 0 and len(place.lines("calls")) == 6
    assert "6 runs done (6 of them now), 0 left" in out
    for name in ("one", "two"):
        runs = read(place.folder / "results" / name / "smoke")
        assert [run.key.seed for run in runs if run.record is not None] == [1, 1, 2, 2]


def with_tests(place, name, setting):
    """Let a study ask for tests that do not change the folders of its runs."""
    file = place.folder / "configs" / "study" / f"{name}.yaml"
    text = file.read_text().replace("overrides: [task=toy", f'overrides: [task=toy, "{setting}"')
    file.write_text(text)


def test_a_run_that_studies_share_makes_the_tests_of_both(place, capsys):
    with_tests(place, "two", "observe.test_noise=[0.2]")
    plan(place, lambda run: {"scores": {**bleu(3.0)(run)["scores"], "test/noise_0.2/bleu": 20.0}})
    _, out = run_queue(capsys, "one", "two", "--commands")
    assert out.count("norm=ln ") == out.count("norm=none ") == out.count("noise") / 2 == 2
    assert run_queue(capsys, "one", "two")[0] == 0
    shared = [call for call in place.lines("calls") if " ln " in call]
    assert shared == ["two ln seed=1", "two ln seed=2"]
    with_tests(place, "one", "observe.test_brightness=[0.5]")
    with pytest.raises(UserError, match=r"one ln seed=1 and two ln seed=1 are the same run, but"):
        run_queue(capsys, "one", "two", "runs_dir=other")


@pytest.mark.parametrize("verb", ["run", "plan", "publish"])
def test_a_run_that_has_ended_without_the_tests_of_its_study_is_refused(place, capsys, verb):
    plan(place, bleu(3.0))
    run_queue(capsys, "one", "seeds=1")
    with pytest.raises(UserError, match=r"without observe.test_noise=\[0.2\]; set runs_dir=FOLDER"):
        command.main([verb, "one", "seeds=1", "observe.test_noise=[0.2]"])
    assert len(place.lines("calls")) == 2


def test_studies_run_in_the_given_order_and_a_seed_ends_before_the_next_starts(place, capsys):
    plan(place, bleu(3.0))
    run_queue(capsys, "two", "one")
    calls = [re.sub(r"^\w+ ", "", call) for call in place.lines("calls")]
    assert calls[:4] == ["ln seed=1", "none seed=1", "ln seed=2", "none seed=2"]
    assert calls[4:] == ["bn seed=1", "bn seed=2"], "ln is made for both"


def test_a_spent_budget_saves_the_runs_and_the_next_call_resumes(place, capsys, monkeypatch):
    slow = {("bn", 2)}

    def of(run):
        return {**bleu(3.0)(run), "seconds": 600.0 if (run.row, run.seed) in slow else 0.0}

    def clock():
        """Return a clock that jumps by two hours as soon as the slow run has begun."""
        return now() + 7200 * (place.lines("calls")[3:] == ["one bn seed=2"])

    plan(place, of)
    now = time.monotonic
    with monkeypatch.context() as patch:
        patch.setattr(process_pool.time, "monotonic", clock)
        code, out = run_queue(capsys, "one", "--publish", "results", budget="1h")
    assert code == 0 and place.lines("stopped") == ["one bn seed=2"]
    assert "1 left" in out and "resume with: normlab study run one --publish results" in out
    assert "one scale=smoke: complete seeds: 1\n" in out
    runs = read(place.folder / "results" / "one" / "smoke")
    assert [run.key.seed for run in runs] == [1, 1], "half a seed is not published"
    plan(place, bleu(3.0))
    code, out = run_queue(capsys, "one", "--publish", "results")
    assert code == 0 and len(place.lines("calls")) == 5
    runs = read(place.folder / "results" / "one" / "smoke")
    assert [run.key.seed for run in runs] == [1, 1, 2, 2]


def test_each_data_set_of_a_study_is_checked_once(monkeypatch):
    asked = []
    monkeypatch.setattr(studied, "data_problem", lambda run: asked.append(run.folder))
    study = load_study("independence")
    runs = studied.runs_of(study.planned("smoke", seeds=[1, 2]))
    studied.check_data(study, "smoke", runs)
    tasks = {json.dumps(run.config["task"].get("source")) for run in runs}
    assert len(tasks) == len(asked) == 2


def test_data_dir_is_set_only_in_runs_that_read_files():
    study = load_study("published_dyt_data")
    runs = studied.runs_of(study.planned("small", seeds=[1], extra=["data_dir=somewhere"]))
    by_corpus = {run.config["choices"]["task/corpus"]: run.config["data_dir"] for run in runs}
    assert by_corpus == {"brown": "somewhere", "pydoc": None}


@pytest.mark.parametrize("study", ["text_against_pictures", "modern_block"])
def test_a_data_dir_that_no_run_reads_is_refused(study):
    planned = load_study(study).planned("smoke", seeds=[1], extra=["data_dir=somewhere"])
    with pytest.raises(UserError, match="data_dir=somewhere has no effect: none of these runs"):
        studied.runs_of(planned)


def test_a_seed_with_a_failed_run_is_not_published(place, capsys):
    plan(place, lambda run: {**bleu(3.0)(run), "fails": (run.row, run.seed) == ("bn", 1)})
    code, out = run_queue(capsys, "one", "--publish", "results")
    assert code == 1 and "failed with status 3" in out
    assert "3 runs done (3 of them now), 1 failed, 0 left" in out
    runs = read(place.folder / "results" / "one" / "smoke")
    assert [run.key.seed for run in runs] == [2, 2]


def test_an_incomplete_seed_is_completed_before_another_starts(place, capsys):
    plan(place, bleu(3.0))
    run_queue(capsys, "one", "seeds=1-2")
    (killed,) = (place.folder / "runs").glob("*-bn-*/seed2/record.json")
    killed.unlink()
    assert run_queue(capsys, "one", "seeds=1-3")[0] == 0
    assert place.lines("calls")[4:] == ["one bn seed=2", "one ln seed=3", "one bn seed=3"]


def test_uncommitted_code_gives_a_warning_only_if_the_runs_would_count(place, capsys, monkeypatch):
    monkeypatch.setattr(studied, "checkout_state", lambda: ("c0ffee", True))
    plan(place, bleu(3.0), seeds=[1])
    argv = ["run", "one", "seeds=1", "--processes", "1"]
    assert command.main(argv) == 0 and "uncommitted" not in capsys.readouterr().err
    file = place.folder / "configs" / "study" / "one.yaml"
    file.write_text(file.read_text().replace("  smoke:", "  small:"))
    assert command.main([*argv, "scale=small"]) == 0
    assert "uncommitted changes, so these runs will decide nothing" in capsys.readouterr().err


def test_rows_without_a_chosen_rate_give_a_warning_only_if_the_runs_would_count(place, capsys):
    size = "{overrides: [task=toy], seeds: [1, 2], minutes: 0.5, data: the built-in corpus"
    tuning = "tuning: {key: optim.lr, values: [1e-3, 2e-3, 4e-3], seeds: [101], score: valid/bleu}"
    file = place.folder / "configs" / "study" / "one.yaml"
    text = file.read_text()
    said = "one scale=small: no learning rate has been chosen for bn; choose it with normlab study"
    for name, more, words, warned in (
        ("small", "rates: {ln: [optim.lr=1e-3]}, ", [], True),
        ("small", "rates: {ln: [optim.lr=1e-3]}, ", ["rows=ln"], False),
        ("small", "pilot: true, ", [], False),
        ("smoke", "", [], False),
    ):
        other = text.replace("  smoke:", "  none:") if name == "smoke" else text
        file.write_text(f"{other}  {name}: {size}, {more}{tuning}}}\n")
        argv = ["one", f"scale={name}", *words, "--processes", "1"]
        assert command.main(["plan", *argv]) == 0
        assert (said in " ".join(capsys.readouterr().err.split())) == warned, (more, words)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["one", "one"], "list each study once"),
        (["one", "tow:norm=ln"], "tow:norm=ln: tow is not one of the studies to run, one"),
        (["scale=small"], "list each study once, such as"),
    ],
)
def test_a_queue_with_repeated_unknown_or_no_studies_is_refused(place, argv, message):
    with pytest.raises(ValueError, match=message):
        command.main(["run", *argv])
