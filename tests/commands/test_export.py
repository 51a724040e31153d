"""An exported model computes what the run's does; a workspace at W&B compares norms."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from normlab.commands.export import main
from normlab.config.compose import compose
from normlab.config.registry import option_names
from normlab.models.folding import fixed_map
from normlab.train.build import make_norm
from normlab.train.loaded import load_run, outputs
from normlab.train.run import train
from normlab.train.wandb import GROUPING
from tests.tiny_runs import tiny, write_corpus

# where products or a feed-forward layer take a norm up, in pre-norm, and what does all of that
PLACES = [
    *(f"encoder.{layer}.{part}" for layer in (0, 1) for part in ("self", "ffn", "ffn.inner")),
    *(f"decoder.0.{part}" for part in ("self", "cross", "ffn", "ffn.inner")),
    "encoder.final",
]
FIXED = [name for name in option_names("norm") if fixed_map(make_norm(name, 8).eval()) is not None]
NORMS = [*FIXED, "{norm:pn,groups:null}", "{norm:pn_v,groups:null}"]
assert {"bn", "mabn", "un", "prepbn", "repbn"} < set(FIXED) and len(NORMS) <= len(PLACES)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    corpus = write_corpus(folder / "text")
    steps = ("budget.steps=3", "validate.every=3", "task.test_search.beam=1")
    rules = ",".join(f"{place}:{norm}" for place, norm in zip(PLACES, NORMS, strict=False))
    norms = ("norm=bn", "norm@ffn_inner_norm=bn", "model.encoder_layers=2", f"sites={{{rules}}}")
    train(compose(tiny(corpus, folder / "runs", *norms, *steps)))
    return next(folder.rglob("record.json")).parent


def test_norms_are_folded_and_the_outputs_agree(run, tmp_path, capsys):
    assert main([str(run), "--fold", "--out", str(tmp_path)]) == 0
    assert f"{len(PLACES)} norms folded, outputs agree to" in capsys.readouterr().out
    content = torch.load(tmp_path / "model.pt", weights_only=True)
    assert len(content["folded"]) == len(PLACES)
    loaded, folded = load_run(run), load_run(run, fold=True)
    for name, value in folded.model.state_dict().items():
        torch.testing.assert_close(content["model"][name], value)
    batch = loaded.task.batch("valid", [0, 2, 3])
    found, expected = (outputs(each.task, each.model, batch) for each in (folded, loaded))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_workspace_at_wandb_compares_norms(wandb_server, capsys):
    pytest.importorskip("wandb_workspaces")
    assert main(["--wandb", "--name", "n", "--where", "task=mlm", "--where", "norm=ln,bn"]) == 0
    (view,) = wandb_server.views
    (runs,) = json.loads(view["spec"])["section"]["runSets"]
    assert [key["name"] for key in runs["grouping"]] == [f"{key}.value" for key in GROUPING]
    filters = [(item["key"]["name"], item["value"]) for item in runs["filters"]["filters"]]
    assert filters == [("task", ["mlm"]), ("norm", ["ln", "bn"])]
    assert view["displayName"] == "n"
    assert capsys.readouterr().out.startswith(f"{wandb_server.url}/tester/normlab?nw=")


@pytest.mark.usefixtures("nobody_is_logged_in")
def test_a_workspace_needs_a_login():
    with pytest.raises(ValueError, match=r"no login for https://.*: run `wandb login`"):
        main(["--wandb"])


def test_a_wrong_key_and_a_filter_that_is_none_are_one_clear_line(wandb_server):
    wandb_server.refuses = True
    with pytest.raises(ValueError, match=r"W&B refuses: .*invalid key"):
        main(["--wandb", "--entity", "tester"])
    with pytest.raises(ValueError, match="--where norm: expected KEY=VALUE"):
        main(["--wandb", "--where", "norm"])
    assert wandb_server.views == []


def test_a_run_of_a_gpu_is_exported_without_one_and_keeps_its_config(run, tmp_path):
    folder = tmp_path / "seed1"
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns("export"))
    record = folder / "record.json"
    text = record.read_text()
    assert '"device": "cpu"' in text
    record.write_text(text.replace('"device": "cpu"', '"device": "cuda"'))
    assert main([str(folder), "device=cpu"]) == 0
    content = torch.load(folder / "export" / "model.pt", weights_only=True)
    assert content["config"]["device"] == "cuda"


def test_what_is_no_run_and_a_setting_that_cannot_change_are_named(run, tmp_path):
    with pytest.raises(ValueError, match="no run below"):
        main([str(tmp_path), "device=cpu"])
    with pytest.raises(ValueError, match="precision=fp32: one run at a time, and only device="):
        main([str(run), "precision=fp32"])
