"""The schema of a run: all properties of each key of its config, in one place.

A key of every run is a field of `RunConfig` or of its parts, with its type, its default and, in
`key`, its other properties. A key that only some options have, such as `norm.ghost`, is a line of
`OPTION_KEYS` in `keys.py`. Its default and a comment that explains it are in the options' files in
`configs/`.

A wrong key or type fails while the config is composed, with its full path. Other values of options
are checked against the signature of the class named in the option's file. Nothing here imports
torch.

`norm` sets the norm of all places, `norm@encoder_norm=bn` the norm of the encoder's places; each
key is a rule on paths (`SITES`). `sites={encoder.0.*:ln,*.ffn:bn}` adds rules; the last rule that
matches a place decides. Paths are `encoder.0.self`, `decoder.1.cross`, `encoder.0.ffn`,
`decoder.final`. Some places have no norm unless the last word of a rule names them:
`encoder.embedding`, `encoder.0.ffn.inner` before the activation, `.hidden` after it, and in an
attention (`encoder.0.self.q`) `q`, `k`, `v`, `mix` before the output projection and `out` after it.
A recurrent layer has `recurrent.0.input`, `hidden` and `cell`. `*` matches anything, dots included.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, make_dataclass
from enum import Enum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, get_type_hints

from normlab.config.keys import MISSING, OPTION_KEYS, KeyFacts, key
from normlab.config.machine import MOST_THREADS
from normlab.config.value_range import (
    COUNT,
    COUNT_OR_EPOCH,
    FACTOR,
    FROM_NONE,
    NAME,
    NOISES,
    PATH,
    POSITIVE,
    RUN,
    SEED,
    SHARE,
    TAGS,
    TEXT,
    TRUE_OR_FALSE,
    number,
    one_of,
)

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
"""All keys that choose a norm, in the order of the config, with the rule that each stands for."""
NORM_KEYS = tuple(SITES)
STACK_NORMS = ("encoder_norm", "decoder_norm")
STEP_NORMS = ("input_norm", "hidden_norm", "cell_norm")
"""The keys of a recurrent layer's norms."""


_THREADS = number(int, gt=0, le=MOST_THREADS)


@dataclass
class BudgetConfig:
    """When a run ends: at the first limit that it reaches."""

    steps: int | None = key(3000, COUNT, short="steps", unit="steps")
    epochs: float | None = key(None, POSITIVE, short="epochs", unit="epochs")
    tokens: int | None = key(None, COUNT, unit="tokens")
    minutes: float | None = key(None, POSITIVE)


@dataclass
class ValidateConfig:
    """When a run is validated, and which weights are tested."""

    every: int | str = key(250, COUNT_OR_EPOCH)
    test: TestedWeights = key(TestedWeights.last)
    best: bool = key(True)
    select_by: str = key("loss")
    patience: int | None = key(None, COUNT)
    average: int = key(0, FROM_NONE)
    average_statistics: AverageStatistics = key(AverageStatistics.recalibrate)
    recalibration_batches: int = key(64, COUNT)
    limit: int | None = key(None, COUNT, newer=True)


@dataclass
class ObserveConfig:
    """Settings for observing a run, which do not change the experiment."""

    log_every: int = key(50, COUNT)
    checkpoint_every: int = key(250, COUNT)
    rank_timeout: float = key(30.0, POSITIVE)
    threads: int | None = key(None, _THREADS)
    fast: bool = key(False)
    other_code: OtherCode = key(OtherCode.refuse)
    debug: bool = key(False, short="debug")
    name: str | None = key(None, NAME, short="name")
    tags: list[str] = key([], TAGS, short="tags")
    study: str | None = key(None)
    processes: int | None = key(None, _THREADS)
    targets: Any = key(None)
    test_noise: list[float] = key([], NOISES)
    test_weight_noise: list[float] = key([], NOISES)
    test_brightness: list[float] = key([], NOISES)
    test_seen: int = key(0, FROM_NONE)
    probe: dict[str, Any] = key({})
    sink: dict[str, Any] = key({})


@dataclass
class RunConfig:
    """The config of a run."""

    task: Any = key(MISSING)
    model: Any = key(MISSING)
    norm: Any = key(MISSING)
    encoder_norm: Any = key(None)
    decoder_norm: Any = key(None)
    ffn_inner_norm: Any = key(MISSING)
    embedding_norm: Any = key(MISSING)
    input_norm: Any = key(None)
    hidden_norm: Any = key(None)
    cell_norm: Any = key(None)
    sites: Any = key(None)
    placement: Any = key(MISSING)
    optim: Any = key(MISSING)
    schedule: Any = key(MISSING)
    seed: int = key(1, SEED, hashed=False)
    batch_size: int | None = key(32, COUNT, title="batch size")
    max_tokens: int | None = key(None, COUNT, unit="tokens per batch")
    batching: Batching = key(Batching.bucket)
    accumulate: int = key(1, COUNT)
    clip_grad: float | None = key(None, POSITIVE)
    precision: Precision = key(Precision.auto, values={each.name: each.name for each in Precision})
    device: Device = key(Device.auto, hashed=False)
    divergence_factor: float = key(3.0, FACTOR)
    budget: BudgetConfig = key(BudgetConfig)
    validate: ValidateConfig = key(ValidateConfig)
    observe: ObserveConfig = key(ObserveConfig, hashed=False)
    start_from: Any = key(None, RUN)
    freeze_statistics: float | None = key(None, SHARE)
    data_dir: str | None = key(None, PATH, folder=1)
    runs_dir: str = key("runs", PATH, folder=1)
    choices: dict[str, Any] = key({}, hashed=False)


OPTIONS = ("task", "model", "placement", "optim", "schedule")
"""The nodes of `RunConfig` that hold an option with its values, except the norms."""
PARTS = {"budget": BudgetConfig, "validate": ValidateConfig, "observe": ObserveConfig}
"""The nodes of `RunConfig` that have their own schema."""
TRACKERS = ("wandb", "tensorboard")
"""The sinks that have short keys: `wandb=true`, `wandb.KEY=VALUE`."""


def _keys_of(schema: type, prefix: str = "") -> Iterator[tuple[str, KeyFacts]]:
    """Yield the keys of a schema and of its parts.

    The range of some keys follows from their type.
    """
    kinds = get_type_hints(schema)
    for each in dataclasses.fields(schema):
        facts: KeyFacts = each.metadata["key"]
        yield f"{prefix}{each.name}", facts if facts.range else _with_range(facts, kinds[each.name])
        if each.name in PARTS and not prefix:
            yield from _keys_of(PARTS[each.name], f"{each.name}.")


def _with_range(facts: KeyFacts, kind: Any) -> KeyFacts:
    """Return the properties of a key, with the range that follows from its type."""
    if kind in (str, str | None, bool):
        return dataclasses.replace(facts, range=TRUE_OR_FALSE if kind is bool else TEXT)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return dataclasses.replace(facts, range=one_of(kind))
    return facts


RUN_KEYS: Mapping[str, KeyFacts] = dict(_keys_of(RunConfig))
"""The keys and nodes that every run has, whatever options it chooses."""
KEYS: Mapping[str, KeyFacts] = {**RUN_KEYS, **OPTION_KEYS}
"""All known keys, by pattern."""
SHORT = {facts.short: name for name, facts in KEYS.items() if facts.short}
"""Short keys, with the key that each stands for."""
REPEATS = {name: facts.repeats for name, facts in KEYS.items() if facts.repeats}
"""The keys that repeat another key's value in the options of configs/."""
PATHS = ("data_dir", "runs_dir", "start_from")
"""The top-level keys that are paths, which may begin with `~`."""
FOLDERS = {name.rpartition(".")[2]: facts.folder for name, facts in KEYS.items() if facts.folder}
"""The names of keys that are folders, which are not hashed at any depth. The value is how many last
components of the path a published config keeps: of a run's folder, the experiment and the seed."""
NOT_HASHED = frozenset(name for name, facts in RUN_KEYS.items() if facts.folder or not facts.hashed)
"""The top-level keys and nodes that are not part of an experiment's fingerprint. (The seed of a
corpus is part of it.)"""
NEWER_OF_MODELS = {
    name: facts.default for name, facts in KEYS.items() if facts.newer and name.startswith("model.")
}
"""The newer keys of models, with their defaults."""
WrittenConfig = make_dataclass(
    "WrittenConfig",
    [(name, Any, MISSING) for name in SHORT],
    bases=(RunConfig,),
    namespace={"__module__": __name__},
)
"""What a command line or an experiment may set: the config of a run, and short keys.

Launchers pickle it by its module and name, because the annotations of its fields cannot be pickled.
"""


@lru_cache(maxsize=4096)
def key_of(name: str) -> KeyFacts:
    """Return the properties of a dotted key, or the defaults of `KeyFacts` for an unknown key."""
    first, _, rest = name.partition(".")
    if first in ("sites", *NORM_KEYS) and rest:
        name = f"norm.{name.rpartition('.')[2] if first == 'sites' else rest}"
    patterns = (facts for pattern, facts in OPTION_KEYS.items() if fnmatchcase(name, pattern))
    return KEYS.get(name) or next(patterns, KeyFacts())


def full_key(name: str) -> str:
    """Return the key that a short key, such as `lr` or `wandb.project`, stands for."""
    return f"observe.sink.{name}" if is_of_tracker(name) else SHORT.get(name, name)


def is_of_tracker(name: str) -> bool:
    """Return whether a key is a short key of a tracker, such as `wandb` or `wandb.project`."""
    return name.partition(".")[0] in TRACKERS


def lifts_steps(keys: Collection[str]) -> bool:
    """Return whether the keys lift the limit on steps, as `epochs` without `steps` does."""
    return "epochs" in keys and not {"steps", SHORT["steps"]} & {*keys}


def top_level_keys() -> list[str]:
    """Return the dotted keys that every run has, without nodes."""
    nodes = (*OPTIONS, *NORM_KEYS, *PARTS, "choices", "observe.probe", "observe.sink")
    return [name for name in RUN_KEYS if name not in nodes]


def leaves(
    node: Mapping[str, Any],
    prefix: str = "",
    *,
    is_value: Callable[[str, Mapping[str, Any]], bool] = lambda key, node: not node,
) -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and value of each leaf.

    A list is a leaf, and so is a mapping for which `is_value(key, mapping)` is true, by default an
    empty one.
    """
    for name, value in node.items():
        key = f"{prefix}.{name}" if prefix else name
        if isinstance(value, Mapping) and not is_value(key, value):
            yield from leaves(value, key, is_value=is_value)
        else:
            yield key, value
