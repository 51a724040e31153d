"""`recipe=bert` composes the published values, and trains."""

import math

import pytest

from normlab.config.compose import compose
from normlab.config.run_config import to_dict
from normlab.tasks.lm import DocumentTask
from normlab.training import train
from normlab.training.build import build_model, build_task, check_nodes
from normlab.training.optimizer import build_optimizer, optimizer_kinds

PUBLISHED = {
    # BERT-base (Devlin et al. 2019): text, model, batch, masking.
    "task.corpus.path": "wikimedia/wikipedia",
    "task.vocab_size": 30_522,
    "task.pieces": "wordpiece",
    "task.lowercase": True,
    "task.nsp": True,
    "task.short_share": 0.1,
    "task.mask_share": 0.15,
    "task.mask_split": [0.8, 0.1, 0.1],
    "task.whole_word": False,
    "task.max_length": 128,
    "task.eval_max_length": 128,
    "task.length_change.max_length": 512,
    "task.length_change.after": 0.9,
    "task.length_change.steps": 1_000_000,
    "task.length_change.step": None,
    "model.dim": 768,
    "model.ffn_dim": 3072,
    "model.num_heads": 12,
    "model.num_layers": 12,
    "model.activation": "gelu",
    "model.dropout": 0.1,
    "model.attention_dropout": 0.1,
    "model.activation_dropout": 0.0,
    "model.positions": "learned",
    "model.max_positions": 512,
    "model.scale_embeddings": False,
    "batch_size": 256,
    "max_tokens": None,
    "batching": "random",
    "accumulate": 1,
    # Its code, optimization.py.
    "optim.option": "adam",
    "optim.betas": [0.9, 0.999],
    "optim.eps": 1e-6,
    "optim.weight_decay": 0.01,
    "optim.groups": {"norm": {"weight_decay": 0.0}, "bias": {"weight_decay": 0.0}},
    "schedule.option": "linear",
    "schedule.total": 1_000_000,
    "clip_grad": 1.0,
    "budget.steps": 1_000_000,
    "budget.epochs": None,
    "validate.every": 10_000,
    "validate.patience": None,
}
# Xiong et al. 2020: the training settings of each placement.
RATES = {"pre": (3e-4, 0), "post": (1e-4, 10_000)}


def value(config, key):
    for part in key.split("."):
        config = config[part]
    return config


@pytest.mark.parametrize("placement", RATES)
def test_the_recipe_has_the_published_values(placement):
    config = to_dict(compose(["task=mlm", "scale=paper", f"placement={placement}"]))
    assert {key: value(config, key) for key in PUBLISHED} == PUBLISHED
    lr, warmup = RATES[placement]
    assert config["optim"]["lr"] == config["schedule"]["lr"] == lr
    assert config["schedule"]["warmup"] == warmup
    assert config["choices"]["recipe"] == "bert"


def test_the_last_tenth_of_the_updates_has_sequences_of_512():
    for steps, first in ((1_000_000, 900_001), (1_000, 901), (10, 10)):
        overrides = ["task=mlm", "recipe=bert", f"budget.steps={steps}"]
        task = build_task(to_dict(compose(overrides)))
        assert isinstance(task, DocumentTask)
        assert (task.length_change.step, task.length_change.max_length) == (first, 512)


SMALL = (
    *("task=mlm", "recipe=bert", "task/corpus=documents", "model=bert_tiny", "model.depth=1"),
    *("model.dim=32", "model.ffn_dim=64", "task.vocab_size=60", "batch_size=8", "sink=[]"),
    *("probe=[]", "task.max_length=24", "task.eval_max_length=24", "model.max_positions=48"),
    *("task.length_change.max_length=48", "task.corpus.valid_share=0.2", "device=cpu"),
    *("task.corpus.test_share=0.2", "observe.threads=1", "precision=fp32"),
    *("task.test_eval_stats=[]", "task.test_batch_sizes=[]", "optim.lr=1e-2"),
    *("budget.steps=60", "validate.every=60", "validate.best=false"),
)


@pytest.fixture
def text(tmp_path):
    lines = [
        f"The {a} {b} sees the {c}.\nThe {c} {b} sees a {a}.\n"
        for a in ("dog", "cat", "bird", "fish")
        for b in ("quickly", "often", "never", "now")
        for c in ("tree", "house", "river", "stone")
    ]
    (tmp_path / "text.txt").write_text("\n".join(lines))
    return tmp_path


def test_a_short_run_of_the_recipe_trains(text, monkeypatch):
    monkeypatch.setenv("NORMLAB_CACHE", str(text / "cache"))
    words = [*SMALL, "placement=post", "schedule.warmup=10"]
    record = train(compose([*words, f"data_dir={text}/text.txt", f"runs_dir={text}/runs"]))
    assert record.outcome.status == "finished"
    # At most 60 pieces: chance is 4.1 nats, and 0.7 for the pairs.
    assert record.scores["valid/mlm_loss"].value < 3
    assert record.scores["valid/loss"].value < math.log(60)
    assert {"valid/steps_to_converge", "valid/tokens_to_converge"} < set(record.scores)


def test_weight_decay_excludes_norms_and_biases(text, monkeypatch):
    monkeypatch.setenv("NORMLAB_CACHE", str(text / "cache"))
    config = to_dict(compose([*SMALL, f"data_dir={text}/text.txt"]))
    model = build_model(config, build_task(config))
    decayed, kept = build_optimizer(config, model).param_groups
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.01, 0.0)
    names = {id(p): name for name, p in model.named_parameters()}
    without = {names[id(p)] for p in kept["params"]}
    assert {names[id(p)] for p in decayed["params"]} == set(names.values()) - without
    assert without == {n for n in names.values() if "norm" in n or n.endswith("bias")}
    assert {"token_bias", "token_norm.weight", "pooler.bias"} < without
    assert {names[id(p)] for p, kind in optimizer_kinds(model) if kind == "norm"} == {
        name for name in names.values() if "norm" in name
    }


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("{gain: {rate: 1}}", r"optim\.groups=.*gain.*norm, bias, embedding, output, other"),
        ("norm", r"optim\.groups='norm'"),
        ("{norm: 0}", r"optim\.groups={'norm': 0}"),
        ("{norm: {decay: 0}}", r"optim\.groups=.*decay.*set rate or weight_decay"),
    ],
)
def test_invalid_parameter_groups_are_errors_with_the_allowed_names(wrong, message):
    config = to_dict(compose([f"+optim.groups={wrong}"]))
    with pytest.raises(ValueError, match=message):
        check_nodes(config)
