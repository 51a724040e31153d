"""The norm that a card describes, and the configs of the card's runs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.config.compose import compose
from normlab.config.overrides import check_given_once
from normlab.config.run_config import to_dict
from normlab.errors import UserError
from normlab.inspection.card.scales import NO_TESTS, SCALES, TASKS, CardScale
from normlab.records.labels import norm_label
from normlab.records.record import RunRecord
from normlab.training import train

if TYPE_CHECKING:
    from omegaconf import DictConfig

REFERENCE = "ln"
_OF_A_CARD = re.compile(r"\+?((\w+_)?norm|placement)([.@]\w+)*=.*")
_UNSAFE = re.compile(r"[^\w.+-]")


@dataclass(frozen=True)
class ExaminedNorm:
    """The norm that a card describes.

    `name` is the name of the card, such as `bn-ghost=4`, and `overrides` are the settings that
    choose the norm and its placement. The card and its runs are stored in `folder`.
    """

    name: str
    overrides: tuple[str, ...]
    scale: str
    folder: Path
    device: str = "cpu"

    @property
    def sizes(self) -> CardScale:
        """The sizes of the card's runs."""
        return SCALES[self.scale]

    def seeds(self, task: str) -> tuple[int, ...]:
        """Return the seeds of the short runs of a task."""
        return self.sizes.image_seeds if task == "images" else self.sizes.seeds

    def steps(self, task: str) -> int:
        """Return the number of updates in a short run of a task."""
        return self.sizes.image_steps if task == "images" else self.sizes.steps

    def config(self, task: str, *more: str, seed: int = 1, reference: bool = False) -> "DictConfig":
        """Return the config of a run with this norm or, if `reference` is set, with layer norm."""
        norm = self._reference() if reference else self.overrides
        return compose(
            [
                *norm,
                *TASKS[task],
                *self._sizes_of(task),
                *self._training_settings(self.steps(task), seed),
                f"runs_dir='{self.folder / 'runs'}'",
                *more,
            ]
        )

    def _reference(self) -> tuple[str, ...]:
        """Return the overrides that choose layer norm, in the same placement."""
        placement = [word for word in self.overrides if word.startswith("placement")]
        return f"norm={REFERENCE}", *placement

    def _sizes_of(self, task: str) -> tuple[str, ...]:
        """Return the overrides that set the sizes of a task's model and data."""
        sizes = self.sizes
        if task == "images":
            return sizes.images
        if task == "translation":
            return (*sizes.text, *sizes.translation)
        return (*sizes.text, *NO_TESTS, "task.length_buckets=[]")

    def _training_settings(self, steps: int, seed: int) -> tuple[str, ...]:
        """Return the overrides for training, which are the same for all tasks."""
        return (
            "precision=fp32",
            f"device={self.device}",
            "observe.threads=1",
            f"seed={seed}",
            "probe=[]",
            "sink=[jsonl]",
            "schedule=cosine",
            f"schedule.warmup={steps // 5}",
            f"budget.steps={steps}",
            f"validate.every={max(1, steps // 6)}",
            "validate.best=false",
            f"observe.log_every={max(1, steps // 20)}",
            "observe.other_code=rerun",
        )

    def check(self) -> None:
        """Raise UserError or a Hydra error if the norm's config cannot be composed."""
        for task in TASKS:
            self.config(task)


def examined_norm(arguments: Sequence[str], folder: Path) -> ExaminedNorm:
    """Return the norm of a card, given arguments such as `norm=bn placement=post scale=smoke`.

    The card's folder is below `folder`. Raises UserError for a key that is fixed for all cards, for
    an unknown scale, or if no norm is set.
    """
    check_given_once(arguments)
    settings, chosen = {"scale": "small", "device": "cpu"}, list[str]()
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key in settings:
            settings[key] = value
        elif _OF_A_CARD.fullmatch(argument):
            chosen.append(argument)
        else:
            raise UserError(
                f"{argument!r} is not allowed, because all cards use the same settings, so that "
                "they can be compared; a card accepts only norm=OPTION, norm.KEY=VALUE, "
                "norm@SITE=OPTION, placement, scale and device"
            )
    if settings["scale"] not in SCALES:
        raise UserError(f"scale={settings['scale']} is not for cards; choose {' or '.join(SCALES)}")
    if not any(argument.startswith("norm=") for argument in chosen):
        raise UserError("no norm is set; add norm=OPTION (`normlab list norms` lists the options)")
    choices = to_dict(compose(chosen))["choices"]
    placement = [] if choices["placement"] == "pre" else [choices["placement"]]
    changed = [text.removeprefix("norm.") for text in chosen if "." in text.partition("=")[0]]
    name = "-".join([norm_label(choices), *placement, *changed])
    home = folder / settings["scale"] / _UNSAFE.sub("_", name)
    return ExaminedNorm(name, tuple(chosen), settings["scale"], home, settings["device"])


def trained_record(config: "DictConfig") -> RunRecord:
    """Return the record of a run. If the run has no record yet, train it first.

    Raises KeyboardInterrupt if the run is interrupted.
    """
    record = train(config)
    if record.outcome.status == "interrupted":
        raise KeyboardInterrupt
    return record
