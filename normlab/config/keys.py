"""What is true of a key of a run's config, and the keys that only some options have.

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
class Key:
    """What is true of a key of a run's config.

    Attributes:
        range: the values it may have; None for any, and for a node.
        default: `MISSING` if it must be given, or if the options of `configs/` have it.
        short: the short key that stands for it.
        repeats: the key whose value it has, unless it is given a value of its own.
        newer: it is newer than many runs. No plain config has it at its default, so that older runs
            keep their fingerprints.
        hashed: it is part of the experiment's fingerprint, unless it names a folder.
        folder: how many last components of its folder a published record keeps; 0 if it names none.
    """

    range: Range | None = None
    default: Any = MISSING
    short: str = ""
    repeats: str = ""
    newer: bool = False
    hashed: bool = True
    folder: int = 0


def key(default: Any, range: Range | None = None, **facts: Any) -> Any:
    """Return a field of the schema, with what is true of its key in the field's metadata."""
    metadata = {"key": Key(range, default, **facts)}
    if isinstance(default, list | dict | type):
        factory = default if isinstance(default, type) else default.copy
        return field(default_factory=factory, metadata=metadata)
    return field(default=default, metadata=metadata)


def newer(default: Any, range: Range | None = None) -> Key:
    """Return the key of an option that is newer than many runs, with its default."""
    return Key(range, default, newer=True)


_COUNTS = list_of("numbers", COUNT)
_PART = number(gt=0, lt=1)
OPTION_KEYS: Mapping[str, Key] = {
    # norm: also those of other norms of a run, and of the rules of `sites`
    "norm.backward_momentum": Key(ABOVE_NONE),
    "norm.blend_share": Key(SHARE),
    "norm.blend_steps": Key(FROM_NONE),
    "norm.correction_share": Key(SHARE),
    "norm.correction_steps": Key(FROM_NONE),
    "norm.d_max": Key(NOT_NEGATIVE),
    "norm.eps": Key(NOT_NEGATIVE),
    "norm.ghost": Key(COUNT),
    "norm.groups": Key(COUNT),
    "norm.momentum": Key(ABOVE_NONE),
    "norm.noise_scale": Key(number(ge=1)),
    "norm.noise_shift": Key(NOT_NEGATIVE),
    "norm.num_positions": Key(COUNT),
    "norm.one_plus": newer(False, TRUE_OR_FALSE),
    "norm.penalty_mean": Key(NOT_NEGATIVE),
    "norm.penalty_var": Key(NOT_NEGATIVE),
    "norm.r_max": Key(number(ge=1)),
    "norm.share": Key(ABOVE_NONE),
    "norm.start": Key(SHARE),
    "norm.warmup_share": Key(SHARE),
    "norm.warmup_steps": Key(FROM_NONE),
    "norm.window": Key(COUNT),
    "placement.share": Key(SHARE),
    # model: the newer ones may be typed for any model whose class has them
    "model.activation_dropout": Key(BELOW_ONE),
    "model.attention_dropout": Key(BELOW_ONE),
    "model.attention_gate": newer("none"),
    "model.bias": newer(True, TRUE_OR_FALSE),
    "model.blocks": Key(COUNT),
    "model.decoder_layers": Key(COUNT, repeats="model.depth"),
    "model.depth": Key(COUNT),
    "model.dim": Key(COUNT),
    "model.dropout": Key(BELOW_ONE),
    "model.encoder_layers": Key(COUNT, repeats="model.depth"),
    "model.ffn_dim": Key(COUNT),
    "model.gain": Key(POSITIVE),
    "model.gated": newer(False, TRUE_OR_FALSE),
    "model.init": newer("xavier"),
    "model.initial_noise": Key(NOT_NEGATIVE),
    "model.logit_cap": newer(None, POSITIVE),
    "model.max_positions": Key(COUNT),
    "model.num_heads": Key(COUNT),
    "model.num_layers": Key(COUNT, repeats="model.depth"),
    "model.patch": Key(COUNT),
    "model.permutation_seed": Key(SEED),
    "model.qk_eps": newer(1e-5, NOT_NEGATIVE),
    "model.qk_length": Key(COUNT),
    "model.rope.base": newer(10_000.0, POSITIVE),
    "model.rope.global_every": newer(6, COUNT),
    "model.rope.local_base": newer(None, POSITIVE),
    "model.rope.pairs": newer(
        "halves", Range("halves, interleaved", Literal["halves", "interleaved"])
    ),
    "model.score_cap": newer(None, POSITIVE),
    "model.tied": newer(True, TRUE_OR_FALSE),
    "model.width": Key(COUNT),
    "optim.alpha": Key(BELOW_ONE),
    "optim.betas": Key(list_of("2 numbers", BELOW_ONE, 2)),
    "optim.dampening": Key(SHARE),
    "optim.eps": Key(NOT_NEGATIVE),
    "optim.groups.*.rate": Key(NOT_NEGATIVE),
    "optim.groups.*.weight_decay": Key(NOT_NEGATIVE),
    "optim.lr": Key(POSITIVE, short="lr"),
    "optim.momentum": Key(BELOW_ONE),
    "optim.weight_decay": Key(NOT_NEGATIVE),
    "schedule.doubling": Key(COUNT),
    "schedule.final": Key(SHARE),
    "schedule.initial": Key(NOT_NEGATIVE),
    "schedule.lr": Key(POSITIVE, repeats="optim.lr"),
    "schedule.minimum": Key(NOT_NEGATIVE),
    "schedule.total": Key(COUNT, repeats="budget.steps"),
    "schedule.warmup": Key(FROM_NONE),
    "task.accumulate": Key(COUNT, repeats="accumulate"),
    "task.augmentation.shift": Key(FROM_NONE),
    "task.batch_size": Key(COUNT, repeats="batch_size"),
    "task.batching": Key(repeats="batching"),
    "task.corpus.data_dir": Key(TEXT, repeats="data_dir", folder=1),
    "task.corpus.name": Key(TEXT),
    "task.corpus.seed": Key(number(int, ge=0, lt=2**32)),
    "task.corpus.size": Key(COUNT),
    "task.corpus.source_language": Key(TEXT),
    "task.corpus.target_language": Key(TEXT),
    "task.corpus.test_share": Key(_PART),
    "task.corpus.test_size": Key(COUNT),
    "task.corpus.valid_share": Key(_PART),
    "task.corpus.valid_size": Key(COUNT),
    "task.data_dir": Key(TEXT, repeats="data_dir", folder=1),
    "task.eval_batch_size": Key(COUNT),
    "task.eval_max_length": Key(FROM_TWO),
    "task.label_smoothing": Key(BELOW_ONE),
    "task.length_buckets": Key(_COUNTS),
    "task.length_change.max_length": Key(FROM_TWO),
    "task.length_change.step": Key(COUNT),
    "task.mask_share": Key(ABOVE_NONE),
    "task.mask_split": Key(list_of("3 numbers", SHARE, 3)),
    "task.max_length": Key(FROM_TWO),
    "task.max_tokens": Key(COUNT, repeats="max_tokens"),
    "task.one_by_one": Key(FROM_NONE),
    "task.short_share": Key(SHARE),
    "task.source.data_dir": Key(TEXT, repeats="data_dir", folder=1),
    "task.source.train_size": Key(COUNT),
    "task.source.valid_size": Key(COUNT),
    "task.targets.*": Key(NUMBERS),
    "task.test_batch_sizes": Key(_COUNTS),
    "task.vocab_size": Key(COUNT),
    "task.*_search.beam": Key(number(int, gt=0, le=1000)),
    "task.*_search.length_factor": Key(NOT_NEGATIVE),
    "task.*_search.length_offset": Key(FROM_NONE),
    "observe.probe.*.eps": Key(POSITIVE),
    "observe.probe.*.every": Key(COUNT),
    "observe.probe.*.min_history": Key(FROM_TWO),
    "observe.probe.*.samples": Key(FROM_TWO),
    "observe.probe.*.smooth": Key(COUNT),
    "observe.probe.*.step": Key(FROM_NONE),
    "observe.probe.*.threshold": Key(POSITIVE),
    "observe.probe.*.tokens": Key(FROM_TWO),
    "observe.probe.*.window": Key(FROM_TWO),
    "observe.sink.*.connect_seconds": Key(NOT_NEGATIVE),
    "observe.sink.*.finish_seconds": Key(NOT_NEGATIVE),
    **{f"observe.sink.wandb.{x}": Key(TEXT) for x in ("entity", "group", "job_type", "name")},
    "observe.sink.wandb.notes": Key(LINES),
    "observe.sink.wandb.project": Key(PROJECT),
    "observe.sink.wandb.tags": Key(TAGS),
    "observe.targets.*": Key(NUMBERS),
    "start_from.run_dir": Key(TEXT, folder=2),
}
"""The keys of options and of nodes that a run may have, by pattern; a star matches any name."""
