"""An exported model computes the same as the model of the run. A W&B workspace compares norms."""

import json
import shutil

import pytest
import torch

from normlab.commands.export import main
from normlab.config.compose import compose
from normlab.inspection.model.built_model import model_from_run
from normlab.training import train
from normlab.training.export import outputs
from normlab.training.loaded_run import load_run
from normlab.training.wandb_workspace import GROUPING


def test_an_exported_model_with_folded_norms_gives_the_same_outputs(finished, tmp_path, capsys):
    assert main([str(finished), "--fold", "--out", str(tmp_path)]) == 0
    loaded, folded = load_run(finished), load_run(finished, fold=True)
    content = torch.load(tmp_path / "model.pt", weights_only=True)
    assert content["folded"] == [*folded.folded] and len(folded.folded) == 6
    assert "6 norms folded, outputs agree to" in capsys.readouterr().out
    for name, value in folded.model.state_dict().items():
        torch.testing.assert_close(content["model"][name], value)
    batch = loaded.task.batch("valid", [0, 2, 3])
    found, expected = (outputs(each.task, each.model, batch) for each in (folded, loaded))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_exported_and_inspected_models_have_the_recalibrated_statistics_of_the_test(
    recalibrating, tmp_path
):
    assert main([str(recalibrating), "--out", str(tmp_path)]) == 0
    exported = torch.load(tmp_path / "model.pt", weights_only=True)["model"]
    run = load_run(recalibrating)
    with run.as_tested() as model:
        tested = {name: value.clone() for name, value in model.state_dict().items()}
    torch.testing.assert_close(exported, tested)
    names = [name for name in tested if name.endswith("running_mean")]
    assert names and not any(torch.equal(run.model.state_dict()[n], exported[n]) for n in names)
    torch.testing.assert_close(model_from_run(recalibrating, []).model.state_dict(), tested)


def test_a_run_in_float64_is_exported_without_rounding(tmp_path):
    short = "task=wine", "steps=2", "schedule.warmup=1", "validate.every=2", "device=cpu"
    train(compose([*short, "norm=bn", "precision=fp64", "sink=[]", f"runs_dir={tmp_path}"]))
    (last,) = tmp_path.rglob("last.pt")
    assert main([str(last.parents[1]), "--out", str(tmp_path / "exported")]) == 0
    exported = torch.load(tmp_path / "exported" / "model.pt", weights_only=True)["model"]
    trained = torch.load(last, weights_only=True)["model"]
    torch.testing.assert_close(exported, trained, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["RUN", "--project", "foo"], "--project needs --wandb"),
        (["RUN", "--where", "norm=bn"], "--where needs --wandb"),
        (["--name", "n"], "--name needs --wandb"),
        (["--wandb", "RUN"], "RUN cannot be combined with --wandb"),
        (["--wandb", "--fold"], "--fold cannot be combined with --wandb"),
    ],
)
def test_flags_that_would_be_ignored_are_refused(argv, said):
    with pytest.raises(ValueError, match=said):
        main(argv)


def test_a_wandb_workspace_groups_and_filters_runs(wandb_server, capsys):
    pytest.importorskip("wandb_workspaces")
    assert main(["--wandb", "--name", "n", "--where", "task=mlm", "--where", "norm=ln,bn"]) == 0
    (view,) = wandb_server.views
    (runs,) = json.loads(view["spec"])["section"]["runSets"]
    assert [key["name"] for key in runs["grouping"]] == [f"{key}.value" for key in GROUPING]
    filters = [(item["key"]["name"], item["value"]) for item in runs["filters"]["filters"]]
    assert filters == [("task", ["mlm"]), ("norm", ["ln", "bn"])]
    assert view["displayName"] == "n"
    assert capsys.readouterr().out.startswith(f"{wandb_server.url}/tester/normlab?nw=")


def test_a_wandb_workspace_begins_with_scores_by_batch_size(wandb_server):
    pytest.importorskip("wandb_workspaces")
    assert main(["--wandb", "--name", "n"]) == 0
    (view,) = wandb_server.views
    first, *_ = json.loads(view["spec"])["section"]["panelBankConfig"]["sections"]
    assert first["name"] == "Score by batch size"
    assert all("batch_size" in json.dumps(panel["config"]) for panel in first["panels"])


@pytest.mark.usefixtures("nobody_is_logged_in")
def test_a_wandb_workspace_needs_a_login():
    with pytest.raises(ValueError, match=r"no login for https://.*: run `wandb login`"):
        main(["--wandb"])


def test_an_invalid_wandb_key_raises_an_error(wandb_server):
    wandb_server.refuses = True
    with pytest.raises(ValueError, match=r"W&B refused: .*invalid key"):
        main(["--wandb", "--entity", "tester"])
    assert wandb_server.views == []


def test_a_run_trained_on_a_gpu_is_exported_without_one_and_keeps_its_config(finished, tmp_path):
    folder = tmp_path / "seed1"
    shutil.copytree(finished, folder)
    record = folder / "record.json"
    text = record.read_text()
    assert '"device": "cpu"' in text
    record.write_text(text.replace('"device": "cpu"', '"device": "cuda"'))
    assert main([str(folder)]) == 0
    content = torch.load(folder / "export" / "model.pt", weights_only=True)
    assert content["config"]["device"] == "cuda"
