"""Sweeps with Hydra's plugins: Optuna searches, and launchers that execute runs elsewhere.

Tests that start several processes run only with `NORMLAB_SLURM=1`.
"""

import math
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from hydra.core.singleton import Singleton
from msgspec.structs import replace
from omegaconf import OmegaConf

from normlab.cli import main
from normlab.config.compose import compose
from normlab.errors import UserError
from normlab.records.record import Score
from normlab.records.store import RunStore
from normlab.studies import hydra_sweep
from normlab.studies.hydra_sweep import SweepActions, objective, run_hydra
from normlab.studies.process_pool import RunToStart
from tests.records.examples import record
from tests.tiny_runs import QUICK, Ended, RunProcess, nothing, tiny, write_corpus

on_request = pytest.mark.skipif(
    os.environ.get("NORMLAB_SLURM") != "1", reason="NORMLAB_SLURM=1 runs it"
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "text")


def sweep(corpus: Path, runs: Path, *overrides: str) -> Ended:
    argv = tiny(corpus, runs, *QUICK, "budget.steps=4", "validate.every=4", "probe=[]", *overrides)
    return RunProcess(["train", "-m", *argv], runs.parent / "log", prepare=nothing).wait(240)


@on_request
def test_a_search_finds_the_best_rate_and_a_diverged_trial_is_the_worst(corpus, tmp_path):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="pip install '.[optuna]'")
    runs = tmp_path / "runs"
    words = ("hydra/sweeper=optuna", "hydra/sweeper/sampler=grid", "hydra.sweeper.n_jobs=1")
    words += ("optim.lr=choice(0.01,1e30)", "optim=sgd", "norm=none")
    ended = sweep(corpus, runs, *words, "hydra.sweeper.n_trials=2")
    assert ended.status == 0, ended.output
    best = yaml.safe_load(ended.output[ended.output.index("name: optuna") :])
    losses = {
        record.config["optim"]["lr"]: record.scores["valid/loss"].value
        for _, record in RunStore(runs).entries()
        if record.outcome.status == "finished"
    }
    assert len(losses) == 1 and best["best_value"] == min(losses.values())
    assert losses[best["best_params"]["optim.lr"]] == best["best_value"]


def test_a_search_for_the_worst_score_is_refused():
    run = record()
    config = compose([])
    scores = {"valid/loss": Score(2.5, higher_is_better=False, n=1)}
    assert objective(replace(run, scores=scores), config, "minimize") == 2.5
    with pytest.raises(ValueError, match=r"set hydra\.sweeper\.direction=minimize"):
        objective(replace(run, scores=scores), config, "maximize")


def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **scores: float) -> int:
    """Search for the norm with the lowest score; each trial ends at once."""
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="pip install '.[optuna]'")
    monkeypatch.setattr(sys, "argv", ["normlab"])
    monkeypatch.setattr(
        hydra_sweep.HydraRuns, "_execute_trial", lambda _, run, *__: scores[run.overrides[0][5:]]
    )
    words = ("hydra/sweeper=optuna", "hydra/sweeper/sampler=grid", "hydra.sweeper.n_jobs=1")
    argv = ["-m", *words, f"norm={','.join(scores)}", f"runs_dir={tmp_path / 'runs'}"]
    return run_hydra(argv, "again", SweepActions(record, lambda _: 0, lambda _: None))


def test_a_search_prints_its_best_trial(tmp_path, monkeypatch, capsys):
    assert search(tmp_path, monkeypatch, ln=math.inf, bn=2.5) == 0
    best = yaml.safe_load(capsys.readouterr().out)
    assert best == {"name": "optuna", "best_params": {"norm": "bn"}, "best_value": 2.5}


def test_a_search_whose_trials_all_diverge_has_no_best_trial(tmp_path, monkeypatch, capsys):
    with pytest.raises(UserError, match="all trials of the search diverged"):
        search(tmp_path, monkeypatch, ln=math.inf, bn=math.inf)
    assert "best_value" not in capsys.readouterr().out


@pytest.mark.parametrize(("seed", "lines"), [(1, 1), (None, 2)])
def test_an_interrupted_search_names_the_command_that_resumes_it(
    seed, lines, monkeypatch, capsys, tmp_path
):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(hydra_sweep, "run_all", interrupt)
    runs = hydra_sweep.HydraRuns({}, "normlab train -m norm=ln,bn", SweepActions(*[interrupt] * 3))
    trial = RunToStart("norm=ln", ("norm=ln",), tmp_path)
    sweeper = OmegaConf.create({"sampler": {"seed": seed}, "direction": "minimize"})
    with pytest.raises(KeyboardInterrupt):
        runs._execute_trial(trial, OmegaConf.create(), sweeper)
    first, *note = capsys.readouterr().err.splitlines()
    assert first == "stopped; resume with: normlab train -m norm=ln,bn"
    assert len(note) == lines - 1 and all("hydra.sweeper.sampler.seed" in line for line in note)


@pytest.mark.parametrize("sweeper", ["basic", "optuna"])
def test_a_sweep_into_a_file_is_refused_like_a_single_run(sweeper, tmp_path):
    (tmp_path / "runs").touch()
    argv = ["-m", f"hydra/sweeper={sweeper}", "norm=ln,bn", f"runs_dir={tmp_path / 'runs'}"]
    with pytest.raises(UserError, match=r"runs is a file; set runs_dir=FOLDER"):
        run_hydra(argv, "again", SweepActions(record, lambda _: 0, lambda _: None))


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """Put jobs that run in this process in place of submitit's; those in `cancelled` do not."""
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="pip install '.[slurm]'")
    import submitit

    jobs = SimpleNamespace(cancelled=set(), arrays=99, trained=[])

    class InThisProcess(submitit.Job):
        state = "CANCELLED"

        def wait(self) -> None:
            pass

        def _get_outcome_and_result(self) -> tuple[str, object]:
            if self.job_id in jobs.cancelled:
                raise submitit.core.utils.UncompletedJobError("Job has not produced any output")
            return "success", self.submission().result()

    def map_array(function, *arguments):
        if not jobs.arrays:
            raise submitit.core.utils.FailedSubmissionError("sbatch: error: no such partition")
        jobs.arrays -= 1
        array = []
        for each in zip(*arguments, strict=True):
            work = submitit.core.utils.DelayedSubmission(function, *each)
            array.append(InThisProcess(tmp_path / "%j", f"10_{each[2]}"))
            array[-1].submission = lambda work=work: work
        return array

    executor = SimpleNamespace(update_parameters=lambda **_: None, map_array=map_array)
    monkeypatch.setattr(submitit, "AutoExecutor", lambda **_: executor)
    monkeypatch.setattr(submitit, "JobEnvironment", lambda: SimpleNamespace(job_id="10"))
    monkeypatch.setattr(Singleton, "set_state", lambda _: None)  # it is this process's own
    monkeypatch.setattr(sys, "argv", ["normlab"])
    return jobs


def submit(queue: SimpleNamespace, runs: Path, *words: str) -> int:
    def train(config):
        queue.trained.append(config.choices.norm)
        return record()

    words = (*words, "norm=ln,bn,rms", "hydra/launcher=submitit_local", f"runs_dir={runs}")
    return run_hydra(["-m", *words], "again", SweepActions(train, lambda _: 0, lambda _: None))


def test_a_cancelled_job_is_a_failed_run_and_the_others_are_waited_for(queue, tmp_path, capsys):
    queue.cancelled = {"10_0"}
    assert submit(queue, tmp_path / "runs") == 1
    assert queue.trained == ["bn", "rms"]
    problem = f"job 10_0 ended without a result (CANCELLED; {tmp_path / '10_0'})"
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "1 runs failed",
        f"  failed: norm=ln runs_dir={tmp_path / 'runs'}",
        f"    {problem}: start the sweep again to resume",
    ]
    assert [path.name for path in (tmp_path / "runs/.sweeps").iterdir()] == ["multirun.yaml"]


def test_a_cancelled_trial_ends_a_search_once_the_other_trials_have_ended(queue, tmp_path):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="pip install '.[optuna]'")
    queue.cancelled = {"10_0"}
    words = ("hydra/sweeper=optuna", "hydra/sweeper/sampler=grid", "hydra.sweeper.n_trials=3")
    with pytest.raises(UserError, match=r"^norm=\w+ .*: job 10_0 ended without a result"):
        submit(queue, tmp_path / "runs", *words, "hydra.sweeper.n_jobs=3")
    assert len(queue.trained) == 2


def test_failed_jobs_are_listed_even_if_later_jobs_cannot_be_submitted(queue, tmp_path, capsys):
    queue.cancelled, queue.arrays = {"10_0"}, 1
    with pytest.raises(UserError, match="no such partition; start the sweep again to resume"):
        submit(queue, tmp_path / "runs", "hydra.sweeper.max_batch_size=1")
    assert "1 runs failed\n  failed: norm=ln " in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "runs/.sweeps").iterdir()] == ["multirun.yaml"]


@on_request
def test_a_failed_job_of_a_sweep_is_listed_and_does_not_affect_the_others(
    corpus: Path, tmp_path: Path
):
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="pip install '.[slurm]'")
    elsewhere = ("hydra/launcher=submitit_local", "hydra.launcher.cpus_per_task=1")
    ended = sweep(corpus, tmp_path / "runs", *elsewhere, "accumulate=0,1")
    assert ended.status == 1
    assert "1 runs failed" in ended.output
    assert "accumulate=0 must be above 0" in ended.output
    assert "Traceback" not in ended.output
    assert len(RunStore(tmp_path / "runs").entries()) == 1


@on_request
def test_jobs_of_a_launcher_find_norms_in_the_users_folder(corpus: Path, tmp_path: Path):
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="pip install '.[slurm]'")
    assert main(["norm", "new", "peak", "--in", str(tmp_path / "own")]) == 0
    elsewhere = ("hydra/launcher=submitit_local", "hydra.launcher.cpus_per_task=1")
    ended = sweep(corpus, tmp_path / "runs", *elsewhere, "norm=peak,ln", f"include={tmp_path}/own")
    assert ended.status == 0, ended.output
    records = [record for _, record in RunStore(tmp_path / "runs").entries()]
    assert sorted(("peak" in record.own_norms, record.outcome.status) for record in records) == [
        (False, "finished"),
        (True, "finished"),
    ]


@on_request
def test_a_sweep_on_ray_finishes_all_runs(corpus: Path, tmp_path: Path):
    reason = "Ray needs an environment of its own: bash scripts/environment.sh ray"
    pytest.importorskip("hydra_plugins.hydra_ray_launcher", reason=reason)
    ended = sweep(corpus, tmp_path / "runs", "hydra/launcher=ray", "norm=ln,bn")
    assert ended.status == 0, ended.output
    records = [record for _, record in RunStore(tmp_path / "runs").entries()]
    assert [record.outcome.status for record in records] == ["finished", "finished"]
