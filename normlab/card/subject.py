"""What a card is of: a norm, where it stands, and the scale of the battery."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.choices import check_given_once
from normlab.config import compose, to_dict
from normlab.records.labels import norm_label

if TYPE_CHECKING:
    from omegaconf import DictConfig

_OF_A_CARD = re.compile(r"\+?((\w+_)?norm|placement)([.@]\w+)*=.*")
_UNSAFE = re.compile(r"[^\w.+-]")
REFERENCE = "ln"


@dataclass(frozen=True)
class Scale:
    """How large the battery is.

    Attributes:
        seeds: of the short runs on text.
        steps: updates of each of them.
        picture_seeds, picture_steps: of the short runs on pictures, which are quicker.
        rate_steps: updates of a run that tries a rate.
        most_rates: rates that are tried at most.
        depth: layers a stack of the model that gradients are followed through.
        rounds: turns of each side in a timing.
        text: keys of every run on text.
        pictures: keys of runs on pictures.
        translation: keys of runs of the translation task alone.
        rate: keys of those among them that try a rate.
    """

    seeds: tuple[int, ...]
    steps: int
    picture_seeds: tuple[int, ...]
    picture_steps: int
    rate_steps: int
    most_rates: int
    depth: int
    rounds: int
    text: tuple[str, ...]
    pictures: tuple[str, ...]
    translation: tuple[str, ...]
    rate: tuple[str, ...]


SCALES = {
    "smoke": Scale(
        seeds=(1,),
        steps=6,
        picture_seeds=(1,),
        picture_steps=6,
        rate_steps=4,
        most_rates=2,
        depth=3,
        rounds=2,
        text=("model.dim=32", "model.ffn_dim=64", "batch_size=8", "task.vocab_size=400"),
        pictures=("model.width=8", "batch_size=32"),
        translation=(
            *("task.corpus.size=300", "task.corpus.valid_size=16", "task.corpus.test_size=16"),
            "task.max_length=256",
        ),
        rate=(),
    ),
    "cpu": Scale(
        seeds=(1, 2),
        steps=600,
        picture_seeds=(1, 2, 3, 4, 5),
        picture_steps=60,  # after 600 all norms, and none, name the same share of the digits
        rate_steps=100,
        most_rates=9,
        depth=12,
        rounds=7,
        text=("model.dim=128", "model.ffn_dim=512", "batch_size=32", "task.vocab_size=1000"),
        pictures=("model.width=16", "batch_size=64"),
        translation=("task.corpus.valid_size=200", "task.corpus.test_size=200"),
        rate=("task.corpus.valid_size=50", "task.corpus.test_size=50"),
    ),
}  # fmt: skip
TASKS = {
    "translation": (
        *("task=toy", "model=tiny", "task.valid_search.length_offset=10"),
        *("task.test_search.beam=1", "task.test_search.length_offset=10"),
    ),
    "language_model": ("task=lm", "task.max_length=64", "task.one_by_one=0"),
    "bert": ("task=mlm", "task.max_length=64"),
    "pictures": (
        *("task=digits", "model=resnet8"),
        *("task.test_batch_sizes=[]", "task.test_eval_stats=[]"),
    ),
}
_TEXT = ("task.test_batch_sizes=[]", "task.test_eval_stats=[]", "task.length_buckets=[]")


@dataclass(frozen=True)
class Examined:
    """A norm under examination.

    Attributes:
        name: of the norm with what differs from its option, such as `bn-ghost=4`.
        overrides: the arguments that choose it, such as `norm=bn norm.ghost=4`.
        scale: the name of a scale.
        folder: where its findings and runs are kept.
    """

    name: str
    overrides: tuple[str, ...]
    scale: str
    folder: Path
    device: str = "cpu"

    @property
    def sizes(self) -> Scale:
        """Return the scale itself."""
        return SCALES[self.scale]

    def seeds(self, task: str) -> tuple[int, ...]:
        """Return the seeds of the short runs of a task."""
        return self.sizes.picture_seeds if task == "pictures" else self.sizes.seeds

    def steps(self, task: str) -> int:
        """Return the updates of a short run of a task."""
        return self.sizes.picture_steps if task == "pictures" else self.sizes.steps

    def config(self, task: str, *more: str, seed: int = 1, reference: bool = False) -> "DictConfig":
        """Return the config of a run of a task of the battery, of the norm or of the reference."""
        sizes = self.sizes
        steps = self.steps(task)
        own = {"pictures": sizes.pictures, "translation": (*sizes.text, *sizes.translation)}
        return compose(
            [
                *(_reference(self.overrides) if reference else self.overrides),
                *(*TASKS[task], *own.get(task, (*sizes.text, *_TEXT))),
                *("precision=fp32", f"device={self.device}", "observe.threads=1", f"seed={seed}"),
                *("probe=[]", "sink=[jsonl]", "schedule=cosine", f"schedule.warmup={steps // 5}"),
                *(f"budget.steps={steps}", f"validate.every={max(1, steps // 6)}"),
                *("validate.best=false", f"observe.log_every={max(1, steps // 20)}"),
                *(f"runs_dir='{self.folder / 'runs'}'", "observe.other_code=rerun", *more),
            ]
        )

    def check(self) -> None:
        """Raise ValueError, or Hydra's errors, where the norm cannot be composed."""
        for task in TASKS:
            self.config(task)


def examined(arguments: Sequence[str], folder: Path) -> Examined:
    """Return the norm that arguments such as `norm=bn placement=post scale=smoke` name.

    Raises ValueError for a key that is the battery's own, an unknown scale, and no norm.
    """
    check_given_once(arguments)
    scale, device, chosen = "cpu", "cpu", list[str]()
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key == "scale":
            scale = value
        elif key == "device":
            device = value
        elif _OF_A_CARD.fullmatch(argument):
            chosen.append(argument)
        else:
            raise ValueError(
                f"{argument!r}: the battery is fixed, so that cards compare; a card takes "
                "norm=OPTION, norm.KEY=VALUE, norm@SITE=OPTION, placement, scale and device"
            )
    if scale not in SCALES:
        raise ValueError(f"scale={scale}: a card has {' and '.join(SCALES)}")
    if not any(argument.startswith("norm=") for argument in chosen):
        raise ValueError("whose card? give norm=OPTION; `normlab ls norm` lists the options")
    name = _name(chosen)
    return Examined(name, tuple(chosen), scale, folder / scale / _UNSAFE.sub("_", name), device)


def _name(overrides: Sequence[str]) -> str:
    """Name the norms by site, the placement unless it is pre-norm, and changed values."""
    choices = to_dict(compose(overrides))["choices"]
    placement = [] if choices["placement"] == "pre" else [choices["placement"]]
    changed = [text.removeprefix("norm.") for text in overrides if "." in text.partition("=")[0]]
    return "-".join([norm_label(choices), *placement, *changed])


def _reference(overrides: Sequence[str]) -> list[str]:
    """Return the arguments with layer norm in the norm's place, the placement as it is."""
    kept = [text for text in overrides if text.startswith("placement")]
    return [f"norm={REFERENCE}", *kept]
