import pytest

from normlab.config.compose import compose, to_dict
from normlab.config.registry import option_names
from normlab.config.shorthand import written_out


@pytest.mark.parametrize("name", option_names("experiment"))
def test_each_experiment_composes(name):
    assert compose([f"experiment={name}"]).choices["task"]


def test_a_file_of_settings_is_what_its_lines_would_be_on_the_command_line(tmp_path):
    file = tmp_path / "my.yaml"
    file.write_text(
        "task: toy\nnorm: batchnorm\noptim: {lr: 2e-3}\nsites: {encoder.0.*: ln}\n"
        f"probe: [tid, padding]\ndata_dir: null\nruns_dir: {tmp_path}/中 文\nvalidate.best: false\n"
    )
    typed = ["task=toy", "norm=bn", "optim.lr=2e-3", "sites={encoder.0.*:ln}", "seed=3"]
    typed += ["probe=[tid,padding]", f"runs_dir='{tmp_path}/中 文'", "validate.best=false"]
    assert to_dict(compose([str(file), "seed=3"])) == to_dict(compose(typed))


def test_what_is_typed_replaces_what_a_file_says_and_short_names_are_written_out():
    found = written_out(["-m", "experiment=gpt_bn", "norm=LayerNorm,batch_norm,dyt", "lr=1,2"])
    assert found[-3:] == ["-m", "norm=ln,bn,dyt", "optim.lr=1,2"]
    assert "norm=bn" not in found and "budget.steps=600" in found
    assert written_out(["steps=5", "epochs=2"]) == ["budget.steps=5", "budget.epochs=2"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("experiment=gpt", "no experiment 'gpt': there are bert_bn"),
        ("nowhere.yaml", "nowhere.yaml: no such file"),
        ("run.yaml", "the config of a run"),
        ("list.yaml", "not a list of settings"),
        ("broken.yaml", "broken.yaml: not YAML"),
    ],
)
def test_an_unreadable_file_or_experiment_is_named(text, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, content in {"run": "choices: {}", "list": "- a", "broken": "a: [b"}.items():
        (tmp_path / f"{name}.yaml").write_text(content)
    with pytest.raises(ValueError, match=said):
        compose([text])
