"""The typed schema of a run: the fixed keys of its config, with their types and defaults.

A wrong key or type fails while the config is composed, with its full path. Groups such as `norm`,
`placement` and `task` are YAML files instead; their values are checked against the signature of the
class named in the option's file. No torch here.
"""

from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from omegaconf import MISSING

from normlab.config.sites import NORM_KEYS

Batching = Enum("Batching", ("bucket", "random"))
Precision = Enum("Precision", ("auto", "fp32", "bf16", "fp64"))
Device = Enum("Device", ("auto", "cpu", "cuda"))
AverageStatistics = Enum("AverageStatistics", ("recalibrate", "average"))
TestedWeights = Enum("TestedWeights", ("last", "best"))
OtherCode = Enum("OtherCode", ("refuse", "accept", "rerun"))


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


@dataclass
class ObserveConfig:
    """What observes a run without being part of the experiment; never in the fingerprint."""

    log_every: int = 50
    checkpoint_every: int = 250
    rank_timeout: float = 30.0
    threads: int | None = None
    fast: bool = False
    other_code: OtherCode = OtherCode.refuse
    study: str | None = None
    processes: int | None = None
    targets: Any = None
    test_noise: list[float] = field(default_factory=list)
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


OPTIONS = ("task", "model", "placement", "optim", "schedule")
"""The nodes of `RunConfig` that hold an option with its values, except the norms."""
PARTS = {"budget": BudgetConfig, "validate": ValidateConfig, "observe": ObserveConfig}
"""The nodes of `RunConfig` with a schema of their own."""


def top_level_keys() -> list[str]:
    """Return the dotted keys that every run has, whatever options it chooses."""
    nodes = (*OPTIONS, *NORM_KEYS, *PARTS, "choices", "probe", "sink")
    schemas = {"": RunConfig, **{f"{name}.": schema for name, schema in PARTS.items()}}
    return [
        f"{prefix}{key.name}"
        for prefix, schema in schemas.items()
        for key in fields(schema)
        if key.name not in nodes
    ]
