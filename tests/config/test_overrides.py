"""What may be typed for longer settings: experiments, files, short keys, W&B and TensorBoard."""

import pytest

from normlab.config.compose import compose, to_dict
from normlab.config.overrides import written_out
from normlab.config.registry import option_names
from normlab.records.record import fingerprint
from normlab.studies.load import load_study

# Experiments that are a run of a study: its scale, row and point.
OF_STUDIES = {
    "bert_bn": ("bert_norms", "long", "bn", "placement=post"),
    "gpt_bn": ("lm_norms", "small", "bn", "placement=pre"),
    "multi30k_bn_encoder": ("translation_norms", "small", "bn in the encoder", "placement=pre"),
    "resnet_ln": ("vision_norms", "small", "ln", ""),
    "vit_bn": ("vit_norms", "small", "bn", ""),
}


@pytest.mark.parametrize("name", option_names("experiment"))
def test_an_experiment_composes_and_is_the_run_of_a_study(name):
    config = to_dict(compose([f"experiment={name}"]))
    if name in OF_STUDIES:
        study, scale, *place = OF_STUDIES[name]
        (run,) = (
            run
            for run in load_study(study).planned(scale, seeds=[1])
            if [run.row, run.point] == place
        )
        assert fingerprint(config) == fingerprint(to_dict(compose(run.overrides)))


def test_a_file_of_settings_is_what_its_lines_would_be_on_the_command_line(tmp_path):
    file = tmp_path / "my settings.yaml"
    file.write_text(
        "task: toy\nnorm: batchnorm\noptim: {lr: 2e-3}\nsites: {encoder.0.*: ln}\ntags: a\n"
        f"probe: [tid, padding]\ndata_dir: null\nruns_dir: {tmp_path}/中 'n\\\nepochs: 2\n"
        "observe.targets: {bleu: [20]}\nvalidate: {best: false}\n"
        "wandb: {project: 1, notes: 'b, c'}\n"
    )
    typed = ["task=toy", "norm=bn", "optim.lr=2e-3", "sites={encoder.0.*:ln}", "seed=3"]
    typed += ["probe=[tid,padding]", f"runs_dir='{tmp_path}/中 \\'n\\\\'", "validate.best=false"]
    typed += [
        "observe.tags=[a]",
        "budget.epochs=2",
        "budget.steps=null",
        "observe.targets={bleu:[20]}",
    ]
    typed += ["sink=[console,jsonl,wandb]", "observe.sink.wandb.project='1'"]
    typed += ["observe.sink.wandb.notes='b, c'"]
    assert to_dict(compose([str(file), "seed=3"])) == to_dict(compose(typed))


def test_what_is_typed_replaces_what_files_say_and_the_last_file_decides(tmp_path):
    (tmp_path / "my.yml").write_text("batching: bucket\nsteps: 7\n")
    found = written_out(["experiment=gpt_bn", str(tmp_path / "my.yml"), "norm=LayerNorm,dyt"])
    assert found[-1] == "norm=ln,dyt"
    assert {"batching=bucket", "budget.steps=7", "optim.lr=1e-2"} <= {*found}
    assert not {"norm=bn", "batching=random", "budget.steps=600"} & {*found}


def test_short_keys_are_written_out():
    assert written_out(["lr=1,2", "steps=5", "epochs=2", "name=a", "tags=a,b"]) == [
        *("optim.lr=1,2", "budget.steps=5", "budget.epochs=2"),
        *("observe.name=a", "observe.tags=[a,b]"),
    ]
    assert compose(["epochs=2"]).budget.steps is None  # else 3000 steps may come first
    with pytest.raises(ValueError, match="schedule=cosine ends at a known step"):
        compose(["epochs=2", "schedule=cosine"])


@pytest.mark.parametrize("key", ["name", "observe.name", "runs_dir", "tags", "wandb.project"])
@pytest.mark.parametrize("text", ["2024_11_28", "2024-11-28", "010", "1.10", "1e3", "true", "no"])
def test_text_stays_as_it_was_written(key, text, tmp_path):
    (tmp_path / "plain.yaml").write_text(f"{key}: {text}\n")
    (tmp_path / "quoted.yaml").write_text(f"{key}: '{text}'\n")
    for typed in (f"{key}={text}", f"{tmp_path}/plain.yaml", f"{tmp_path}/quoted.yaml"):
        config = compose([typed])
        node = config.observe.sink.wandb if key.startswith("wandb") else config.observe
        found = node[key.rpartition(".")[2]] if key != "runs_dir" else config.runs_dir
        assert found == ([text] if key == "tags" else text), typed


def test_a_name_may_have_the_spaces_and_joiners_of_any_script():
    for name in ("a\u00a0b", "数据\u3000集", "क्\u200cष"):
        assert compose([f"runs_dir='{name}'"]).runs_dir == name


def test_notes_may_have_several_lines():
    assert compose(["wandb.notes=a\nb"]).observe.sink.wandb.notes == "a\nb"


def test_a_number_is_decimal_and_may_be_in_quotes(tmp_path):
    (tmp_path / "my.yaml").write_text("seed: 010\nlr: '1e-3'\n")
    config = compose([f"{tmp_path}/my.yaml"])
    assert (config.seed, config.optim.lr) == (10, 1e-3)
    assert compose(["lr='1e-3'"]).optim.lr == 1e-3


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "my.yaml").write_text("runs_dir: ~/runs\n")
    for typed in ("runs_dir=~/runs", f"{tmp_path}/my.yaml"):
        assert compose([typed]).runs_dir == f"{tmp_path}/runs"


@pytest.mark.parametrize(
    ("arguments", "sinks"),
    [
        ([], ["console", "jsonl"]),
        (["wandb=true"], ["console", "jsonl", "wandb"]),
        (
            ["sink=[jsonl]", "wandb.mode=offline", "tensorboard=true"],
            ["jsonl", "tensorboard", "wandb"],
        ),
        (["wandb.name=x", "wandb=false"], ["console", "jsonl"]),
        (["sink=[console,wandb]", "wandb=false"], ["console"]),
    ],
)
def test_trackers_are_added_when_asked_for(arguments, sinks):
    assert sorted(compose(arguments).observe.sink) == sinks


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("experiment=gpt_b", r"no experiment 'gpt_b': there are bert_bn.* Did you mean gpt_bn"),
        ("experiment=gpt_bn,bert_bn", "a command or a sweep takes one experiment"),
        ("experimnt=gpt_bn", r"Did you mean experiment\?"),
        ("step=5", r"Did you mean .*\bsteps\?"),
        ("naem=x", "Did you mean name"),
        ("wandb.projct=x", r"wandb has project, .* Did you mean wandb\.project"),
        ("wandb=yes", "give wandb=true or wandb=false"),
        ("tensorboard.port=1", "tensorboard.port does not exist: give tensorboard=true"),
        ("nowhere.yaml", "nowhere.yaml: no such file"),
        ("folder.yaml", "folder.yaml: a folder"),
        ("bytes.yaml", "bytes.yaml: not YAML"),
        ("run.yaml", "the config of a whole run"),
        ("list.yaml", "list.yaml: no settings"),
        ("empty.yaml", "empty.yaml: no settings"),
        ("broken.yaml", "broken.yaml: not YAML"),
        ("twice.yaml", "twice.yaml: norm is given twice"),
        ("no.yaml", "no option 'no' of the group 'norm'"),
        ("long_and_short.yaml", "long_and_short.yaml: optim.lr is given twice"),
        ("hydra.yaml", "hydra.yaml: defaults: write norm: bn"),
        ("my.txt", r"'my.txt': expected key=value, such as norm=bn, or a \.yaml file"),
        *((f"name={name}", "use letters, digits") for name in ("a/b", "../a", ".a", "-a", "a b")),
    ],
)
def test_what_cannot_be_read_is_named(text, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {"run": "choices: {}", "list": "- a", "broken": "a: [b", "empty": ""}
    files |= {"twice": "norm: ln\nnorm: bn", "long_and_short": "lr: 1\noptim: {lr: 2}"}
    files |= {"no": "norm: no", "hydra": "defaults:\n  - override /norm: bn\n"}
    for name, content in files.items():
        (tmp_path / f"{name}.yaml").write_text(content)
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00norm")
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(ValueError, match=said):
        compose([text])
