"""`normlab train`: one run; with -m or Hydra's search plugins, many (`_sweep.py`)."""

import os
import shlex
import shutil
import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from normlab.commands._terminal import folded
from normlab.studies.loop import INTERRUPTED, end_with_the_sweep

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from normlab.records.record import RunRecord


def main(argv: list[str], again: str | None = None) -> int:
    """Compose the config and train; Hydra handles the flags.

    `again` is the command that resumes, if it is not this one.
    """
    if argv in (["--help"], ["-h"]):
        print(help_text())
        return 0
    from normlab.config.compose import compose
    from normlab.config.suggest import check_arguments, check_given_once

    end_with_the_sweep()
    check_arguments(argv)
    check_given_once(argv)
    if (shown := shown_config(argv)) is not None:
        print(shown, end="")
        return 0
    again = again or f"normlab train {shlex.join(argv)}"
    if any(text.startswith(("-", "hydra")) for text in argv):
        from normlab.commands._sweep import run_hydra

        return run_hydra(argv, again=again)
    record = train_and_say(compose(argv))
    if record.outcome.status != "interrupted":
        return 0
    if _is_first_rank():
        print(f"to resume: {again}", file=sys.stderr)
    return INTERRUPTED


def shown_config(argv: Sequence[str]) -> str | None:
    """Return the config of a run for `--cfg job`; None if Hydra must answer.

    Hydra would print its own composition, without the values of a recipe.
    """
    flags = ArgumentParser(add_help=False, allow_abbrev=False)
    flags.add_argument("--cfg", "-c")
    known, overrides = flags.parse_known_args(argv)
    if known.cfg != "job" or any(text.startswith("-") for text in overrides):
        return None
    from omegaconf import OmegaConf

    from normlab.config.compose import compose, to_dict

    return OmegaConf.to_yaml(OmegaConf.create(to_dict(compose(overrides))))


def train_and_say(config: "DictConfig") -> "RunRecord":
    """Carry out a run and print its last line."""
    from normlab.train.run import train

    record = train(config)
    if _is_first_rank():
        print(summary(record))
    return record


def _is_first_rank() -> bool:
    """Return whether this is torchrun's first process or the only one; works after a run, too."""
    return os.environ.get("RANK", "0") == "0"


def summary(record: "RunRecord") -> str:
    """Return the last line of a run: its outcome and test scores."""
    from normlab.metrics.spread import NOT_CLEAR, learned

    scores = ", ".join(
        f"{name} {score.value:.4g}"
        for name, score in record.main_scores.items()
        if name.startswith("test")
    )
    reason = f" ({record.outcome.reason})" if record.outcome.reason else ""
    but = f", but {NOT_CLEAR}:" if learned(record) is False else ""
    ended = f"{record.outcome.status} at step {record.outcome.step}{reason}{but}"
    return f"{record.run_id}: {ended} {scores}"


def help_text() -> str:
    """Return the help page: usage, examples, config groups with their options, keys."""
    from normlab.config.registry import option_names, run_groups
    from normlab.config.schema import NORM_KEYS, top_level_keys

    width = shutil.get_terminal_size().columns

    def listed(head: str, words: Iterable[str], between: str = " ") -> list[str]:
        return folded(between.join(words), width, first=head, rest=" " * len(head))

    options = [listed(f"  {name}=", option_names(name), " | ") for name in run_groups()]
    lines = [
        "usage: normlab train [-m] [group=option ...] [key=value ...]",
        "",
        "examples:",
        "  normlab train norm=bn task=toy batch_size=32",
        "  normlab train norm=bn norm@decoder_norm=ln task=multi30k data_dir=FOLDER",
        "  normlab train norm=ln 'sites={encoder.0.*:bn,*.self.q:rms}'",
        "  normlab train -m norm=ln,bn batch_size=8,32,128 'seed=range(1,4)'",
        "",
        "groups:",
        *(line for group in options for line in group),
        "",
        *listed("norms of one site: ", (f"norm@{key}=OPTION" for key in NORM_KEYS[1:])),
        "",
        *listed("keys: ", top_level_keys()),
        "",
        "more: --cfg job shows the whole config; --hydra-help shows Hydra's own flags;",
        "      normlab list GROUP describes the options of a group",
    ]
    return "\n".join(lines)
