"""Two studies in a folder, with runs that take no time."""

import pytest

from normlab.commands import study
from normlab.config import machine
from normlab.studies import job, study_runs, tuning_job
from normlab.studies.load import load_study
from tests.studies.queues import STUDY, TUNING
from tests.studies.stand_in import StandIn


@pytest.fixture(scope="module")
def composed():
    compose, known = study_runs.composed, {}

    def once(run):
        own = (o for o in run.overrides if not o.startswith("seed="))
        key = *own, machine.processor_features()  # which determine precision=auto
        if key not in known:
            known[key] = compose(run)
        return {**known[key], "seed": run.seed}

    return once


@pytest.fixture
def place(tmp_path, monkeypatch, composed):
    """Return the stand-in for the interpreter, with two studies that share a row."""
    configs = tmp_path / "configs"
    (configs / "study").mkdir(parents=True)
    for name, rows in (("one", ("ln", "bn")), ("two", ("ln", "none"))):
        written = "{" + ", ".join(f"{row}: [norm={row}]" for row in rows) + "}"
        text = STUDY.format(name=name, rows=written, seeds="[1, 2]")
        (configs / "study" / f"{name}.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(study_runs, "composed", composed)
    monkeypatch.setattr(study_runs, "data_problem", lambda run: None)
    monkeypatch.setattr(study, "PUBLISH_TO", tmp_path / "published")
    monkeypatch.setattr(job, "load_study", lambda name: load_study(name, configs))
    found = StandIn(tmp_path)
    found.install(monkeypatch)
    return found


@pytest.fixture
def tuned(place, monkeypatch):
    """Return the stand-in for the interpreter, with a tuning in the first study."""
    folder = place.folder / "configs" / "study"
    path = folder / "one.yaml"
    path.write_text(path.read_text().replace("smoke: {overrides: [task=toy]", TUNING))
    monkeypatch.setattr(tuning_job, "load_study", lambda name: load_study(name, folder.parent))
    monkeypatch.setattr(tuning_job, "study_file", lambda name: folder / f"{name}.yaml")
    return place
