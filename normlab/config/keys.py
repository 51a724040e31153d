"""The properties of a key of a run's config, and the keys that only some options have.

The keys of every run are fields of `schema.RunConfig`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from normlab.config.value_range import (
    ABOVE_NONE,
    BELOW_ONE,
    COUNT,
    FROM_NONE,
    FROM_TWO,
    LINES,
    NOT_NEGATIVE,
    NUMBERS,
    PATH,
    POSITIVE,
    PROJECT,
    SEED,
    SHARE,
    TAGS,
    TEXT,
    TRUE_OR_FALSE,
    Range,
    list_of,
    number,
)

MISSING = "???"  # as in omegaconf, which light commands do not import


@dataclass(frozen=True)
class KeyFacts:
    """The properties of a key of a run's config.

    Attributes:
        range: the allowed values, or None if any value is allowed or the key is a node.
        default: `MISSING` if the key must be set, or if options of `configs/` have the default.
        short: the short key that stands for it.
        repeats: the key whose value it takes unless it is set itself.
        newer: whether it was added when many runs already existed. A plain config leaves it out at
            its default, so that older runs keep their fingerprints.
        hashed: whether it is part of the experiment's fingerprint, unless it is a folder.
        folder: how many components at the end of its path a published record keeps; 0 if the key is
            not a folder.
        title: its name in tables and figures, if that is not the key.
        unit: the noun that follows its number, as in `3,000 steps`.
        values: what readers see instead of key and value, by the value as it is typed.
    """

    range: Range | None = None
    default: Any = MISSING
    short: str = ""
    repeats: str = ""
    newer: bool = False
    hashed: bool = True
    folder: int = 0
    title: str = ""
    unit: str = ""
    values: Mapping[str, str] = field(default_factory=dict[str, str])


def key(default: Any, range: Range | None = None, **facts: Any) -> Any:
    """Return a field of the schema, with the properties of its key in the field's metadata."""
    metadata = {"key": KeyFacts(range, default, **facts)}
    if isinstance(default, list | dict | type):
        factory = default if isinstance(default, type) else default.copy
        return field(default_factory=factory, metadata=metadata)
    return field(default=default, metadata=metadata)


def newer(default: Any, range: Range | None = None) -> KeyFacts:
    """Return the properties of an option's key that was added when many runs already existed."""
    return KeyFacts(range, default, newer=True)


_COUNTS = list_of("numbers", COUNT)
_PART = number(gt=0, lt=1)
OPTION_KEYS: Mapping[str, KeyFacts] = {
    # norm: also keys of a run's other norms, and of the rules of `sites`
    "norm.affine": KeyFacts(title="gain", values={"true": "with gain", "false": "without gain"}),
    "norm.backward_momentum": KeyFacts(ABOVE_NONE),
    "norm.blend_share": KeyFacts(SHARE),
    "norm.blend_steps": KeyFacts(FROM_NONE),
    "norm.correction_share": KeyFacts(SHARE),
    "norm.correction_steps": KeyFacts(FROM_NONE),
    "norm.d_max": KeyFacts(NOT_NEGATIVE),
    "norm.detach": KeyFacts(
        title="detached statistics",
        values={
            "mean": "mean detached",
            "std": "std detached",
            "value": "value detached",
            "none": "nothing detached",
            "both": "both detached",
        },
    ),
    "norm.eps": KeyFacts(NOT_NEGATIVE),
    "norm.eval_stats": KeyFacts(
        title="statistics at evaluation",
        values={
            "running": "running statistics",
            "batch": "batch statistics",
            "recalibrated": "recalibrated statistics",
        },
    ),
    "norm.ghost": KeyFacts(COUNT, title="ghost batch", values={"null": "no ghost batches"}),
    "norm.groups": KeyFacts(COUNT),
    "norm.momentum": KeyFacts(ABOVE_NONE),
    "norm.noise_scale": KeyFacts(number(ge=1), title="noise scale"),
    "norm.noise_shift": KeyFacts(NOT_NEGATIVE),
    "norm.num_positions": KeyFacts(COUNT),
    "norm.one_plus": newer(False, TRUE_OR_FALSE),
    "norm.padding": KeyFacts(
        title="padding",
        values={
            "exclude": "padding excluded",
            "fill": "padding filled",
            "include": "padding included",
        },
    ),
    "norm.penalty_mean": KeyFacts(NOT_NEGATIVE),
    "norm.penalty_var": KeyFacts(NOT_NEGATIVE),
    "norm.r_max": KeyFacts(number(ge=1)),
    "norm.share": KeyFacts(ABOVE_NONE),
    "norm.start": KeyFacts(SHARE),
    "norm.warmup_share": KeyFacts(SHARE),
    "norm.warmup_steps": KeyFacts(FROM_NONE),
    "norm.window": KeyFacts(COUNT),
    "placement.share": KeyFacts(SHARE),
    # model: newer keys may be set for any model whose class has them
    "model.activation_dropout": KeyFacts(BELOW_ONE),
    "model.attention_dropout": KeyFacts(BELOW_ONE),
    "model.attention_gate": newer("none"),
    "model.bias": newer(True, TRUE_OR_FALSE),
    "model.blocks": KeyFacts(COUNT),
    "model.decoder_layers": KeyFacts(COUNT, repeats="model.depth"),
    "model.depth": KeyFacts(COUNT, title="depth"),
    "model.dim": KeyFacts(COUNT, title="width"),
    "model.dropout": KeyFacts(BELOW_ONE, title="dropout"),
    "model.encoder_layers": KeyFacts(COUNT, repeats="model.depth"),
    "model.ffn_dim": KeyFacts(COUNT),
    "model.gain": KeyFacts(POSITIVE, title="initial gain"),
    "model.gated": newer(False, TRUE_OR_FALSE),
    "model.init": newer("xavier"),
    "model.initial_noise": KeyFacts(NOT_NEGATIVE),
    "model.input_statistics": KeyFacts(
        title="input statistics",
        values={
            "step": "input statistics by step",
            "sequence": "input statistics by sequence",
        },
    ),
    "model.logit_cap": newer(None, POSITIVE),
    "model.max_positions": KeyFacts(COUNT),
    "model.num_heads": KeyFacts(COUNT),
    "model.num_layers": KeyFacts(COUNT, repeats="model.depth"),
    "model.patch": KeyFacts(COUNT),
    "model.permutation_seed": KeyFacts(SEED),
    "model.qk_eps": newer(1e-5, NOT_NEGATIVE),
    "model.qk_length": KeyFacts(COUNT),
    "model.rope.base": newer(10_000.0, POSITIVE),
    "model.rope.global_every": newer(6, COUNT),
    "model.rope.local_base": newer(None, POSITIVE),
    "model.rope.pairs": newer(
        "halves", Range("halves, interleaved", Literal["halves", "interleaved"])
    ),
    "model.score_cap": newer(None, POSITIVE),
    "model.tied": newer(True, TRUE_OR_FALSE),
    "model.width": KeyFacts(COUNT),
    "optim.alpha": KeyFacts(BELOW_ONE),
    "optim.betas": KeyFacts(list_of("2 numbers", BELOW_ONE, 2)),
    "optim.dampening": KeyFacts(SHARE),
    "optim.eps": KeyFacts(NOT_NEGATIVE),
    "optim.groups.*.rate": KeyFacts(NOT_NEGATIVE),
    "optim.groups.*.weight_decay": KeyFacts(NOT_NEGATIVE),
    "optim.lr": KeyFacts(POSITIVE, short="lr", title="learning rate"),
    "optim.momentum": KeyFacts(BELOW_ONE),
    "optim.weight_decay": KeyFacts(NOT_NEGATIVE),
    "schedule.doubling": KeyFacts(COUNT),
    "schedule.final": KeyFacts(SHARE),
    "schedule.initial": KeyFacts(NOT_NEGATIVE),
    "schedule.lr": KeyFacts(POSITIVE, repeats="optim.lr"),
    "schedule.minimum": KeyFacts(NOT_NEGATIVE),
    "schedule.total": KeyFacts(COUNT, repeats="budget.steps"),
    "schedule.warmup": KeyFacts(FROM_NONE, unit="warm-up steps"),
    "task.accumulate": KeyFacts(COUNT, repeats="accumulate"),
    "task.augmentation.shift": KeyFacts(FROM_NONE),
    "task.batch_size": KeyFacts(COUNT, repeats="batch_size"),
    "task.batching": KeyFacts(repeats="batching"),
    "task.corpus.data_dir": KeyFacts(PATH, repeats="data_dir", folder=1),
    "task.corpus.name": KeyFacts(TEXT),
    "task.corpus.seed": KeyFacts(number(int, ge=0, lt=2**32)),
    "task.corpus.size": KeyFacts(COUNT),
    "task.corpus.source_language": KeyFacts(TEXT),
    "task.corpus.target_language": KeyFacts(TEXT),
    "task.corpus.test_share": KeyFacts(_PART),
    "task.corpus.test_size": KeyFacts(COUNT),
    "task.corpus.valid_share": KeyFacts(_PART),
    "task.corpus.valid_size": KeyFacts(COUNT),
    "task.data_dir": KeyFacts(PATH, repeats="data_dir", folder=1),
    "task.eval_batch_size": KeyFacts(COUNT),
    "task.eval_max_length": KeyFacts(FROM_TWO, title="test length"),
    "task.label_smoothing": KeyFacts(BELOW_ONE, title="label smoothing"),
    "task.length_buckets": KeyFacts(_COUNTS),
    "task.length_change.max_length": KeyFacts(FROM_TWO),
    "task.length_change.step": KeyFacts(COUNT),
    "task.mask_share": KeyFacts(ABOVE_NONE),
    "task.mask_split": KeyFacts(list_of("3 numbers", SHARE, 3)),
    "task.max_length": KeyFacts(FROM_TWO),
    "task.max_tokens": KeyFacts(COUNT, repeats="max_tokens"),
    "task.one_by_one": KeyFacts(FROM_NONE),
    "task.short_share": KeyFacts(SHARE),
    "task.source.data_dir": KeyFacts(PATH, repeats="data_dir", folder=1),
    "task.source.train_size": KeyFacts(COUNT),
    "task.source.valid_size": KeyFacts(COUNT),
    "task.targets.*": KeyFacts(NUMBERS),
    "task.test_batch_sizes": KeyFacts(_COUNTS),
    "task.vocab_size": KeyFacts(COUNT),
    "task.*_search.beam": KeyFacts(number(int, gt=0, le=1000)),
    "task.*_search.length_factor": KeyFacts(NOT_NEGATIVE),
    "task.*_search.length_offset": KeyFacts(FROM_NONE),
    "observe.probe.*.eps": KeyFacts(POSITIVE),
    "observe.probe.*.every": KeyFacts(COUNT),
    "observe.probe.*.min_history": KeyFacts(FROM_TWO),
    "observe.probe.*.samples": KeyFacts(FROM_TWO),
    "observe.probe.*.smooth": KeyFacts(COUNT),
    "observe.probe.*.step": KeyFacts(FROM_NONE),
    "observe.probe.*.threshold": KeyFacts(POSITIVE),
    "observe.probe.*.tokens": KeyFacts(FROM_TWO),
    "observe.probe.*.window": KeyFacts(FROM_TWO),
    "observe.sink.*.connect_seconds": KeyFacts(NOT_NEGATIVE),
    "observe.sink.*.finish_seconds": KeyFacts(NOT_NEGATIVE),
    **{f"observe.sink.wandb.{x}": KeyFacts(TEXT) for x in ("entity", "group", "job_type", "name")},
    "observe.sink.wandb.notes": KeyFacts(LINES),
    "observe.sink.wandb.project": KeyFacts(PROJECT),
    "observe.sink.wandb.tags": KeyFacts(TAGS),
    "observe.targets.*": KeyFacts(NUMBERS),
    "start_from.run_dir": KeyFacts(TEXT, folder=2),
}
"""The keys of options and of nodes that a run may have, by pattern; a star matches any name."""
