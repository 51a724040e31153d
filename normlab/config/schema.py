"""The typed schema of a run: the keys of its config, with types and defaults.

A wrong key or type fails while the config is composed, with its full path; `ranges` says which
values are allowed. Groups such as `norm`, `placement` and `task` are YAML files instead; their
values are checked against the signature of the class named in the option's file. Nothing here
imports torch.

`norm` sets the norm of all places, `norm@encoder_norm=bn` the norm of the encoder's places; each
key is a rule on paths (`SITES`). `sites={encoder.0.*:ln,*.ffn:bn}` adds rules; the last rule that
matches a place decides. Paths are `encoder.0.self`, `decoder.1.cross`, `encoder.0.ffn`,
`decoder.final`. Some places have no norm unless the last word of a rule names them:
`encoder.embedding`, `encoder.0.ffn.inner` before the activation, `.hidden` after it, and in an
attention (`encoder.0.self.q`) `q`, `k`, `v`, `mix` before the output projection and `out` after it.
A recurrent layer has `recurrent.0.input`, `hidden` and `cell`. `*` matches anything, dots included.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, make_dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, cast, get_type_hints

MISSING = "???"  # as in omegaconf, which light commands do not import

Batching = Enum("Batching", ("bucket", "random"))
Precision = Enum("Precision", ("auto", "fp32", "bf16", "fp64"))
Device = Enum("Device", ("auto", "cpu", "cuda"))
AverageStatistics = Enum("AverageStatistics", ("recalibrate", "average"))
TestedWeights = Enum("TestedWeights", ("last", "best"))
OtherCode = Enum("OtherCode", ("refuse", "accept", "rerun"))

SITES = {
    "norm": "*",
    "encoder_norm": "encoder.*",
    "decoder_norm": "decoder.*",
    "ffn_inner_norm": "*.inner",
    "embedding_norm": "*.embedding",
    "input_norm": "recurrent.*.input",
    "hidden_norm": "recurrent.*.hidden",
    "cell_norm": "recurrent.*.cell",
}
"""All keys that name a norm, in the order of the config, with the rule that each is short for."""
NORM_KEYS = tuple(SITES)
STACK_NORMS = ("encoder_norm", "decoder_norm")
STEP_NORMS = ("input_norm", "hidden_norm", "cell_norm")
"""The keys of a recurrent layer's norms."""


@dataclass
class BudgetConfig:
    """When a run ends: at the first limit that it reaches."""

    steps: int | None = 3000
    epochs: float | None = None
    tokens: int | None = None
    minutes: float | None = None


@dataclass
class ValidateConfig:
    """When a run is validated, and which weights are tested."""

    every: int | str = 250
    test: TestedWeights = TestedWeights.last
    best: bool = True
    select_by: str = "loss"
    patience: int | None = None
    average: int = 0
    average_statistics: AverageStatistics = AverageStatistics.recalibrate
    recalibration_batches: int = 64
    limit: int | None = None


@dataclass
class ObserveConfig:
    """How to observe a run.

    These settings do not change the experiment and are left out of its fingerprint.
    """

    log_every: int = 50
    checkpoint_every: int = 250
    rank_timeout: float = 30.0
    threads: int | None = None
    fast: bool = False
    other_code: OtherCode = OtherCode.refuse
    debug: bool = False
    name: str | None = None
    tags: list[str] = field(default_factory=list)
    study: str | None = None
    processes: int | None = None
    targets: Any = None
    test_noise: list[float] = field(default_factory=list)
    test_weight_noise: list[float] = field(default_factory=list)
    test_brightness: list[float] = field(default_factory=list)
    test_seen: int = 0
    probe: dict[str, Any] = field(default_factory=dict)
    sink: dict[str, Any] = field(default_factory=dict)


@dataclass
class RunConfig:
    """The config of a run."""

    task: Any = MISSING
    model: Any = MISSING
    norm: Any = MISSING
    encoder_norm: Any = None
    decoder_norm: Any = None
    ffn_inner_norm: Any = MISSING
    embedding_norm: Any = MISSING
    input_norm: Any = None
    hidden_norm: Any = None
    cell_norm: Any = None
    sites: Any = None
    placement: Any = MISSING
    optim: Any = MISSING
    schedule: Any = MISSING
    seed: int = 1
    batch_size: int | None = 32
    max_tokens: int | None = None
    batching: Batching = Batching.bucket
    accumulate: int = 1
    clip_grad: float | None = None
    precision: Precision = Precision.auto
    device: Device = Device.auto
    divergence_factor: float = 3.0
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    validate: ValidateConfig = field(default_factory=ValidateConfig)
    observe: ObserveConfig = field(default_factory=ObserveConfig)
    start_from: Any = None
    freeze_statistics: float | None = None
    data_dir: str | None = None
    runs_dir: str = "runs"
    choices: dict[str, Any] = field(default_factory=dict)


SHORT = {
    "lr": "optim.lr",
    "steps": "budget.steps",
    "epochs": "budget.epochs",
    "name": "observe.name",
    "tags": "observe.tags",
    "debug": "observe.debug",
}
"""Short keys, with what each stands for."""
WrittenConfig = make_dataclass(
    "WrittenConfig", [(key, Any, MISSING) for key in SHORT], bases=(RunConfig,)
)
"""What may be typed, or written in an experiment: the config of a run, and short keys."""
TRACKERS = ("wandb", "tensorboard")
"""The sinks with short keys of their own: `wandb=true`, `wandb.KEY=VALUE`."""
LATER: dict[str, Any] = {
    "model.rope.base": 10_000.0,
    "model.rope.pairs": "halves",
    "model.rope.local_base": None,
    "model.rope.global_every": 6,
    "model.gated": False,
    "model.bias": True,
    "model.tied": True,
    "model.init": "xavier",
    "model.qk_eps": 1e-5,
    "model.score_cap": None,
    "model.logit_cap": None,
    "model.attention_gate": "none",
    "norm.one_plus": False,
    "validate.limit": None,
}
"""Keys that are newer than many runs, with their defaults; `norm.` stands for each norm of a run.

No plain config holds one that is at its default, so that older runs keep their fingerprints. Those
of `model` may be typed for any model whose class has them.
"""
REPEATS = {
    "schedule.lr": "optim.lr",
    "schedule.total": "budget.steps",
    "model.num_layers": "model.depth",
    "model.encoder_layers": "model.depth",
    "model.decoder_layers": "model.depth",
}
"""The keys that repeat another key's value in the options of configs/."""
_CORPUS = tuple(f"task.corpus.{name}" for name in ("name", "source_language", "target_language"))
OPTIONS = ("task", "model", "placement", "optim", "schedule")
"""The nodes of `RunConfig` that hold an option with its values, except the norms."""
PARTS = {"budget": BudgetConfig, "validate": ValidateConfig, "observe": ObserveConfig}
"""The nodes of `RunConfig` with a schema of their own."""


def later_model_keys() -> dict[str, Any]:
    """Return the dotted keys of `model` in `LATER`, with their defaults."""
    return {key: default for key, default in LATER.items() if key.startswith("model.")}


def lifts_steps(keys: Collection[str]) -> bool:
    """Return whether typed keys lift the limit on steps, as `epochs` without `steps` does."""
    return "epochs" in keys and not {"steps", SHORT["steps"]} & {*keys}


def top_level_keys() -> dict[str, Any]:
    """Return the dotted keys that every run has, whatever options it chooses, with their types."""
    nodes = (*OPTIONS, *NORM_KEYS, *PARTS, "choices", "probe", "sink")
    schemas = {"": RunConfig, **{f"{name}.": schema for name, schema in PARTS.items()}}
    return {
        f"{prefix}{key}": kind
        for prefix, schema in schemas.items()
        for key, kind in get_type_hints(schema).items()
        if key not in nodes
    }


@lru_cache(maxsize=1)
def text_keys() -> set[str]:
    """Return the keys whose value is text."""
    keys = {key for key, kind in top_level_keys().items() if kind in (str, str | None)}
    return {*keys, *(key for key, full in SHORT.items() if full in keys), "start_from", *_CORPUS}


def leaves(node: object, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and value of each leaf; a list or an empty mapping is a leaf."""
    if isinstance(node, Mapping) and node:
        for name, value in cast("Mapping[str, object]", node).items():
            yield from leaves(value, f"{prefix}.{name}" if prefix else name)
    elif prefix:
        yield prefix, node
