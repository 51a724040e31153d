"""W&B and TensorBoard from the command line: the settings that turn them on, and their effect."""

import subprocess
import sys

import pytest

from normlab.cli import main
from normlab.training.wandb_workspace import SECTIONS
from tests.tiny_runs import QUICK, tiny, write_corpus
from tests.training.wandb_client import files, read

pytestmark = pytest.mark.usefixtures("nobody_is_logged_in")


@pytest.fixture
def words(tmp_path):
    """Return the settings of a run of two steps."""
    corpus = write_corpus(tmp_path / "text")
    short = ("steps=2", "validate.every=2", "placement=pre", "probe=[]")
    given = tiny(corpus, tmp_path / "runs", *QUICK, *short)
    return [word for word in given if not word.startswith("budget.steps")]


def test_a_sweep_of_batch_sizes_has_one_group_per_size(words, wandb_server, capsys):
    sweep = [word for word in words if not word.startswith("batch_size")]
    sweep += ["norm=layernorm", "batch_size=4,6", "observe.processes=1", "tags=sizes"]
    own = ["wandb.project=norms", "wandb.entity=team", "wandb.tags=a", "wandb.notes=no, warm-up"]
    assert main(["train", "-m", *sweep, *own]) == 0
    assert "wandb.group" not in capsys.readouterr().out, "run names omit the added group"
    runs = [(run.fields, run.config) for run in wandb_server.runs.values()]
    found = sorted((fields["groupName"], config["batch_size"]) for fields, config in runs)
    assert found == [("ln-pre-b4", 4), ("ln-pre-b6", 6)]
    said = [(fields["project"], fields["entity"], fields["notes"]) for fields, _ in runs]
    assert said == [("norms", "team", "no, warm-up")] * 2
    tags = [(fields["jobType"], *fields["tags"][-2:]) for fields, _ in runs]
    assert tags == [("sweep", "sizes", "a")] * 2
    assert all(fields["displayName"].startswith("translation-") for fields, _ in runs)


@pytest.mark.parametrize(
    ("given", "name"), [(["wandb.name=x"], "x"), (["name=mine", "wandb=true"], "mine-ln-pre-b6-")]
)
def test_the_name_of_a_run_is_sent_to_wandb(given, name, words, wandb_server):
    assert main(["train", *words, *given]) == 0
    (run,) = wandb_server.runs.values()
    assert run.fields["displayName"].startswith(name)


OF_OTHER_TASKS = {"test/mlm_accuracy", "test/accuracy", "valid/mlm_accuracy"}


def test_an_offline_file_has_the_settings_and_every_metric_of_the_workspace(words, tmp_path):
    """Uses the probes of the default config, at every step."""
    given = ["wandb.mode=offline", "wandb.name=first", "wandb.project=norms", "norm=bn"]
    probed = [f"observe.probe.{name}.every=1" for name in ("tid", "residual")]
    words.remove("probe=[]")
    assert main(["train", *words, *given, *probed]) == 0
    (folder,) = tmp_path.glob("runs/*/seed1")
    (file,) = files(folder)
    run, logged, summary = read(file)
    assert (run.display_name, run.project) == ("first", "norms")
    assert (run.run_group, run.job_type) == ("bn-pre-b6", "train")
    assert summary["valid/loss"].keys() == {"min", "max", "last"} and summary["test/bleu"] >= 0
    panels = {metric for section in SECTIONS.values() for metric in section}
    missing = {name for name in panels if name.removesuffix(".min") not in {*logged, *summary}}
    assert missing == OF_OTHER_TASKS
    assert len(logged) < 25


def test_tensorboard_true_adds_a_tensorboard_log(words, tmp_path):
    pytest.importorskip("tensorboard", reason="the tensorboard extra is not installed")
    assert main(["train", *words, "tensorboard=true", "name=mine"]) == 0
    assert [*tmp_path.glob("runs/mine/*/seed1/tensorboard/events*")]
    assert [*tmp_path.glob("runs/mine/*/seed1/metrics.jsonl")]


def test_wandb_is_not_imported_without_its_settings(words):
    code = f"import sys; from normlab.cli import main; main(['train', *{words!r}]); "
    code += "print('imported', [name for name in sys.modules if name.startswith('wandb')])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.endswith("imported []\n"), run.stdout
