"""Short forms on the command line: experiments, files, short keys, W&B and TensorBoard."""

import sys
from pathlib import Path

import pytest

from normlab.config import folders
from normlab.config.compose import compose, written_out
from normlab.config.registry import option_names
from normlab.config.run_config import to_dict
from normlab.errors import UserError
from normlab.records.record import fingerprint
from normlab.studies.load import load_study

# Experiments that equal a run of a study: its scale, row and point.
OF_STUDIES = {
    "bert_bn": ("bert_norms", "long", "bn", "placement=post"),
    "gpt_bn": ("lm_norms", "small", "bn", "placement=pre"),
    "multi30k_bn_encoder": ("translation_norms", "small", "bn in the encoder", "placement=pre"),
    "resnet_ln": ("vision_norms", "small", "ln", ""),
    "vit_bn": ("vit_norms", "small", "bn", ""),
}


@pytest.fixture
def own_experiments(tmp_path, monkeypatch):
    """Return a function that writes an experiment into a user's folder."""
    (tmp_path / "experiment").mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv(folders.PATH, str(tmp_path))
    yield lambda name, text: (tmp_path / "experiment" / f"{name}.yaml").write_text(text)
    folders._own_folders.cache_clear()


@pytest.mark.parametrize("name", option_names("experiment"))
def test_an_experiment_composes_and_equals_its_run_of_a_study(name):
    config = to_dict(compose([f"experiment={name}"]))
    if name in OF_STUDIES:
        study, scale, *place = OF_STUDIES[name]
        (run,) = (
            run
            for run in load_study(study).planned(scale, seeds=[1])
            if [run.row, run.point] == place
        )
        assert fingerprint(config) == fingerprint(to_dict(compose(run.overrides)))


def test_a_file_in_hydra_style_composes_like_the_same_settings_typed(tmp_path):
    file = tmp_path / "my settings.yaml"
    file.write_text(
        "# @package _global_\n"
        "defaults:\n  - override /norm: bn\n  - override /probe: [tid, padding]\n"
        "  - override /sink: [console, jsonl, wandb]\n  - override /norm@decoder_norm: gn\n"
        f"lr: 2e-3\nsites: {{encoder.0.*: ln}}\ntags: a\nruns_dir: {tmp_path}/中 'n\\\nepochs: 2\n"
        "observe: {targets: {bleu: [20]}, sink: {wandb: {project: 1, notes: 'b, c'}}}\n"
        "validate: {best: false}\n"
    )
    typed = ["norm=bn", "norm@decoder_norm=gn", "optim.lr=2e-3", "sites={encoder.0.*:ln}", "seed=3"]
    typed += ["probe=[tid,padding]", f"runs_dir='{tmp_path}/中 \\'n\\\\'", "validate.best=false"]
    typed += ["observe.tags=[a]", "budget.epochs=2", "budget.steps=null"]
    typed += ["observe.targets={bleu:[20]}", "wandb=true", "wandb.project=1", "wandb.notes='b, c'"]
    assert to_dict(compose([str(file), "seed=3"])) == to_dict(compose(typed))


def test_an_experiment_gets_the_recipe_of_its_task_and_inherits_from_others(own_experiments):
    own_experiments("base", "defaults: [{override /task: iwslt}]\nlr: 3\n")
    own_experiments("mine", "defaults: [base, {override /norm: gn}]\noptim: {lr: 4}\nseed: 5\n")
    config = compose(["+experiment=mine"])
    assert config.choices.recipe == "rbn" and config.max_tokens == 4096
    assert (config.choices.norm, config.seed, config.optim.lr) == ("gn", 5, 4)
    own_experiments("own", "defaults: [mine, {override /recipe: none}]\nbatch_size: 8\n")
    assert compose(["experiment=own"]).batch_size == 8
    assert compose(["experiment=own", "max_tokens=512"]).batch_size is None
    assert "experiment" not in compose(["experiment=own"]).choices


def test_the_last_experiment_wins_but_typed_keys_override_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yml").write_text("batching: bucket\nsteps: 300\n")
    words = ["experiment=gpt_bn", "my.yml", "norm=LayerNorm"]
    config = compose(words)
    assert (config.choices.norm, config.batching.name) == ("ln", "bucket")
    assert (config.budget.steps, config.optim.lr) == (300, 1e-2)
    assert compose(words[::-1]).budget.steps == 600
    assert compose([*words, "budget.steps=400"]).budget.steps == 400


def test_a_sweep_over_experiments_is_accepted():
    words = ["-m", "experiment=vit_bn,resnet_ln"]
    assert written_out(words) == words[::-1]


def test_the_later_of_a_short_key_and_its_full_key_wins():
    for words, rate in ((["lr=1", "optim.lr=2"], 2), (["optim.lr=2", "lr=1"], 1)):
        assert compose(words).optim.lr == rate
    config = compose(["steps=5", "epochs=2", "name=a", "tags=a,b"])
    assert (config.budget.steps, config.budget.epochs) == (5, 2)
    assert (config.observe.name, config.observe.tags) == ("a", ["a", "b"])
    assert compose(["epochs=2"]).budget.steps is None  # else 3000 steps may come first
    with pytest.raises(ValueError, match="schedule=cosine ends at a known step"):
        compose(["epochs=2", "schedule=cosine"])


@pytest.mark.parametrize("text", ["2024_11_28", "2024-11-28", "010", "1.10", "1e3", "true", "no"])
def test_text_that_looks_like_a_number_or_a_date_stays_text(text, tmp_path):
    short = [f"{key}={text}" for key in ("name", "runs_dir", "tags", "wandb.project")]
    full = [f"observe.name={text}", *short[1:]]
    for name, value in (("plain", text), ("quoted", f"'{text}'")):
        project = f"observe: {{sink: {{wandb: {{project: {value}}}}}}}\n"
        keys = f"name: {value}\nruns_dir: {value}\ntags: {value}\n"
        (tmp_path / f"{name}.yaml").write_text(
            f"defaults: [override /sink: [wandb]]\n{keys}{project}"
        )
    for words in (short, full, [f"{tmp_path}/plain.yaml"], [f"{tmp_path}/quoted.yaml"]):
        config = compose(words)
        values = [config.observe.name, config.runs_dir, config.observe.sink.wandb.project]
        assert [*values, *config.observe.tags] == [text] * 4, words


def test_a_path_may_contain_the_spaces_and_joiners_of_any_script():
    for name in ("a\u00a0b", "数据\u3000集", "क्\u200cष"):
        assert compose([f"runs_dir='{name}'"]).runs_dir == name


def test_notes_may_have_several_lines():
    assert compose(["wandb.notes=a\nb"]).observe.sink.wandb.notes == "a\nb"


def test_a_number_is_read_as_decimal_even_in_quotes(tmp_path):
    (tmp_path / "my.yaml").write_text("seed: 010\nlr: 1e-3\n")
    config = compose([f"{tmp_path}/my.yaml"])
    assert (config.seed, config.optim.lr) == (10, 1e-3)
    assert compose(["lr='1e-3'"]).optim.lr == 1e-3


@pytest.mark.parametrize("key", ["start_from", "data_dir", "runs_dir", "task.data_dir"])
def test_an_empty_path_is_refused(key, tmp_path):
    task, name = ("cifar10", "task.source.data_dir") if key == "task.data_dir" else ("lm", key)
    file = tmp_path / "my.yaml"
    file.write_text(f"{name.replace('.', ': {')}: ''{'}' * name.count('.')}\n")
    typed = [[f"{name}="], [f'{name}=""'], [str(file)]]
    for words in typed:
        with pytest.raises(UserError, match=rf"{name}=.* path"):
            compose([f"task={task}", *words])
    if key == name:
        with pytest.raises(UserError, match=f"{key}= is empty, but .* shell variable unset"):
            written_out(["-m", "seed=1,2", f"{key}="])


def test_hydra_gets_paths_without_a_tilde(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    words = written_out(["-m", "runs_dir=~/a b", "data_dir='~/c'", "start_from=~/d,e"])
    assert words[1:] == [
        f"runs_dir={tmp_path}/a b",
        f"data_dir='{tmp_path}/c'",
        f"start_from={tmp_path}/d,e",
    ]


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
        (["my.yaml", "wandb=true"], ["console", "tensorboard", "wandb"]),
        (["my.yaml", "tensorboard=false"], ["console"]),
        (["my.yaml", "sink=[jsonl]", "wandb=true"], ["jsonl", "wandb"]),
    ],
)
def test_wandb_and_tensorboard_are_added_to_the_sinks_of_a_run(
    arguments, sinks, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text("defaults:\n  - override /sink: [console, tensorboard]\n")
    assert sorted(compose(arguments).observe.sink) == sinks


def test_wandb_is_refused_in_a_sweep_over_experiments_with_different_sinks(tmp_path):
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text("defaults:\n  - override /sink: [console]\n")
    two.write_text("seed: 2\n")
    words = ["-m", f"experiment='{one}','{two}'", "wandb=true"]
    with pytest.raises(UserError, match="wandb: the runs of this sweep have different sinks"):
        written_out(words)
    two.write_text("defaults:\n  - override /sink: [console]\n")
    assert "sink=[console,wandb]" in written_out(words)


def test_wandb_can_be_added_to_a_sweep_over_experiments_that_match_a_pattern():
    words = written_out(["-m", "experiment=glob(gpt*)", "wandb=true"])
    assert words == ["experiment=glob(gpt*)", "-m", "sink=[console,jsonl,wandb]"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "experiment=gpt_b",
            r"'gpt_b' is not an option of the group 'experiment'.* Did you mean gpt_bn",
        ),
        ("wandb.projct=x", r"wandb has project, .* Did you mean wandb\.project"),
        ("wandb=yes", "set wandb=true or wandb=false"),
        ("tensorboard.port=1", "tensorboard.port does not exist: set tensorboard=true"),
        ("nowhere.yaml", "nowhere.yaml does not exist"),
        ("folder.yaml", "folder.yaml is a folder"),
        ("bytes.yaml", "bytes.yaml is not YAML"),
        ("run.yaml", "the config of a whole run"),
        ("list.yaml", "list.yaml is not a mapping"),
        ("empty.yaml", "empty.yaml has no settings"),
        ("broken.yaml", "broken.yaml is not YAML"),
        ("twice.yaml", "twice.yaml: seed occurs twice"),
        ("no.yaml", "no.yaml: 'no' is not an option of the group 'norm'"),
        ("long_and_short.yaml", "long_and_short.yaml: lr and optim.lr are the same key"),
        ("group.yaml", "group.yaml: instead of norm: bn, write - override /norm: bn in defaults"),
        ("dotted.yaml", r"dotted.yaml: budget.steps: 3: write budget: \{steps: 3\}"),
        ("number.yaml", "number.yaml: 3: a key must be a word"),
        ("default.yaml", "default.yaml: defaults: 5 must be a list with `- override /norm: bn`"),
        ("entry.yaml", "entry.yaml: defaults: 5 must look like `- override /norm: bn`"),
        ("nested.yaml", r"nested.yaml: defaults: a: \{'b': 'c'\} must be the name of one option"),
        ("norms.yaml", r"norms.yaml: defaults: override /norm: .* must be the name of one option"),
        ("part.yaml", "part.yaml: budget: 5 must have keys of its own, one per line"),
        ("missing.yaml", r"missing.yaml: seed: \?\?\?: write the value itself"),
        ("unknown.yaml", "unknown.yaml: naem does not exist.* Did you mean name"),
        ("my.txt", r"'my.txt': expected key=value, such as norm=bn, or a \.yaml file"),
        *(
            (f"name={name}", "must be 1 to 80 letters, digits")
            for name in ("a/b", "../a", ".a", "-a", "a b")
        ),
    ],
)
def test_unreadable_files_and_invalid_settings_are_errors_that_say_why(
    text, said, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    files = {"run": "choices: {}", "list": "- a", "broken": "a: [b", "empty": ""}
    files |= {"twice": "seed: 1\nseed: 2", "long_and_short": "lr: 1\noptim: {lr: 2}"}
    files |= {"no": "defaults: [override /norm: no]", "group": "norm: bn", "unknown": "naem: a"}
    files |= {"dotted": "budget.steps: 3", "number": "3: bn"}
    files |= {"default": "defaults: 5", "entry": "defaults: [5]", "part": "budget: 5"}
    files |= {"nested": "defaults: [{a: {b: c}}]", "missing": "seed: ???"}
    files |= {"norms": "defaults: [override /norm: [bn, ln]]"}
    for name, content in files.items():
        (tmp_path / f"{name}.yaml").write_text(content)
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00norm")
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(ValueError, match=said):
        compose([text])
