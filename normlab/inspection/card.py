"""The report card of a norm: its runs' sizes and configs, and questions that need no training."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from normlab.config.compose import compose
from normlab.config.overrides import check_given_once
from normlab.config.plain import to_dict
from normlab.config.registry import options
from normlab.errors import UserError
from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import Question, question
from normlab.inspection.bare_norm import normal, on_table, trained
from normlab.inspection.depth import first_update, gradients
from normlab.inspection.pooling import SHAPE, dependence, sees_in_words
from normlab.inspection.questions import entry
from normlab.inspection.subject import Subject, subject_of, subject_of_run
from normlab.norms.axes import axes_in_words, in_order
from normlab.norms.running import RunningNorm
from normlab.records.labels import norm_label
from normlab.records.record import RunRecord, plain
from normlab.records.store import RunStore
from normlab.training import train
from normlab.training.runtime import Runtime
from normlab.training.speed import StepClock, start

if TYPE_CHECKING:
    from omegaconf import DictConfig

FORMAT = "normlab.card/1"
REFERENCE = "ln"
_OF_A_CARD = re.compile(r"\+?((\w+_)?norm|placement)([.@]\w+)*=.*")
_TIMED_STEPS = 4
_SIDES = (REFERENCE, "this norm")
_UNSAFE = re.compile(r"[^\w.+-]")


@dataclass(frozen=True)
class CardScale:
    """The sizes of a card's runs, and their config overrides: `text`, `pictures`, `translation`.

    `rate` has the overrides of the learning-rate trials, at most `most_rates` of them.
    `depth` is the layers per stack of the deep model, `rounds` the number of timing rounds.
    """

    seeds: tuple[int, ...] = (1,)
    steps: int = 6
    picture_seeds: tuple[int, ...] = (1,)
    picture_steps: int = 6
    rate_steps: int = 4
    most_rates: int = 2
    depth: int = 3
    rounds: int = 2
    text: tuple[str, ...] = ()
    pictures: tuple[str, ...] = ("model.width=8", "batch_size=32")
    translation: tuple[str, ...] = ()
    rate: tuple[str, ...] = ()


SCALES = {
    "smoke": CardScale(
        text=("model.dim=32", "model.ffn_dim=64", "batch_size=8", "task.vocab_size=400"),
        translation=(
            *("task.corpus.size=300", "task.corpus.valid_size=16", "task.corpus.test_size=16"),
            "task.max_length=256",
        ),
    ),
    "small": CardScale(
        seeds=(1, 2),
        steps=600,
        picture_seeds=(1, 2, 3, 4, 5),
        picture_steps=60,  # after 600 steps all norms score the same, even `none`
        rate_steps=100,
        most_rates=9,
        depth=12,
        rounds=7,
        text=("model.dim=128", "model.ffn_dim=512", "batch_size=32", "task.vocab_size=1000"),
        pictures=("model.width=16", "batch_size=64"),
        translation=("task.corpus.valid_size=200", "task.corpus.test_size=200"),
        rate=("task.corpus.valid_size=50", "task.corpus.test_size=50"),
    ),
}
_NO_TESTS = ("task.test_batch_sizes=[]", "task.test_eval_stats=[]")
TASKS = {
    "translation": (
        *("task=toy", "model=tiny", "task.valid_search.length_offset=10"),
        *("task.test_search.beam=1", "task.test_search.length_offset=10"),
    ),
    "language_model": ("task=lm", "task.max_length=64", "task.one_by_one=0"),
    "bert": ("task=mlm", "task.max_length=64"),
    "pictures": ("task=digits", "model=resnet8", *_NO_TESTS),
}


@dataclass(frozen=True)
class Examined:
    """The norm that a card describes, with its name, such as `bn-ghost=4`, and its overrides.

    The card's runs are stored in `folder`.
    """

    name: str
    overrides: tuple[str, ...]
    scale: str
    folder: Path
    device: str = "cpu"

    @property
    def sizes(self) -> CardScale:
        """The sizes of the card's runs at its scale."""
        return SCALES[self.scale]

    def seeds(self, task: str) -> tuple[int, ...]:
        """Return the seeds of the short runs of a task."""
        return self.sizes.picture_seeds if task == "pictures" else self.sizes.seeds

    def steps(self, task: str) -> int:
        """Return the number of updates in a short run of a task."""
        return self.sizes.picture_steps if task == "pictures" else self.sizes.steps

    def config(self, task: str, *more: str, seed: int = 1, reference: bool = False) -> "DictConfig":
        """Return the config of a task's run with this norm, or with the reference (layer norm)."""
        sizes = self.sizes
        steps = self.steps(task)
        of_task = {
            "pictures": sizes.pictures,
            "translation": (*sizes.text, *sizes.translation),
        }
        text = (*sizes.text, *_NO_TESTS, "task.length_buckets=[]")
        placement = [word for word in self.overrides if word.startswith("placement")]
        return compose(
            [
                *([f"norm={REFERENCE}", *placement] if reference else self.overrides),
                *(*TASKS[task], *of_task.get(task, text)),
                *("precision=fp32", f"device={self.device}", "observe.threads=1", f"seed={seed}"),
                *("probe=[]", "sink=[jsonl]", "schedule=cosine", f"schedule.warmup={steps // 5}"),
                *(f"budget.steps={steps}", f"validate.every={max(1, steps // 6)}"),
                *("validate.best=false", f"observe.log_every={max(1, steps // 20)}"),
                *(f"runs_dir='{self.folder / 'runs'}'", "observe.other_code=rerun", *more),
            ]
        )

    def check(self) -> None:
        """Raise UserError or a Hydra error if the norm's config cannot be composed."""
        for task in TASKS:
            self.config(task)


def examined(arguments: Sequence[str], folder: Path) -> Examined:
    """Parse arguments such as `norm=bn placement=post scale=smoke` into the norm of a card.

    Raises UserError for a key that cards fix, for an unknown scale, or if no norm is given.
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
                f"{argument!r}: cards fix their runs' settings to be comparable; they only accept "
                "norm=OPTION, norm.KEY=VALUE, norm@SITE=OPTION, placement, scale and device"
            )
    if settings["scale"] not in SCALES:
        raise UserError(f"scale={settings['scale']}: choose {' or '.join(SCALES)}")
    if not any(argument.startswith("norm=") for argument in chosen):
        raise UserError("no norm given: add norm=OPTION; `normlab list norms` lists the options")
    choices = to_dict(compose(chosen))["choices"]
    placement = [] if choices["placement"] == "pre" else [choices["placement"]]
    changed = [text.removeprefix("norm.") for text in chosen if "." in text.partition("=")[0]]
    name = "-".join([norm_label(choices), *placement, *changed])
    home = folder / settings["scale"] / _UNSAFE.sub("_", name)
    return Examined(name, tuple(chosen), settings["scale"], home, settings["device"])


def answers(
    subject: Examined, questions: Sequence[Question]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each question's name and answer; model questions are about the translation model."""
    model = cache(partial(_trained_model, subject))
    for each in questions:
        if each.of == "card":
            answer = each.ask(subject)
        elif (trained := model()) is not None:
            answer = each.ask(trained)
        else:
            answer = Finding.none("the translation run diverged, so there is no trained model")
        yield each.name, plain(entry(each, answer))


def trained_record(config: "DictConfig") -> RunRecord:
    """Return a run's record, and train the run first if there is none.

    Raises KeyboardInterrupt if interrupted.
    """
    record = train(config)
    if record.outcome.status == "interrupted":
        raise KeyboardInterrupt
    return record


def _trained_model(subject: Examined) -> Subject | None:
    config = subject.config("translation", seed=subject.sizes.seeds[0])
    if trained_record(config).outcome.status != "finished":
        return None
    return subject_of_run(RunStore(config.runs_dir).run_dir(to_dict(config)), [])


def card_of(subject: Examined, answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of `card.json` as plain values, with this machine's environment."""
    config = to_dict(subject.config("translation"))
    environment = Runtime.start(device=subject.device, precision="fp32", threads=1).environment()
    described = {option.name: option.description for option in options("norm")}
    return {
        "format": FORMAT,
        "name": subject.name,
        "description": described[config["choices"]["norm"]],
        "overrides": list(subject.overrides),
        "scale": subject.scale,
        "seeds": list(subject.sizes.seeds),
        "norm": config["norm"],
        "environment": plain(dict(environment)),
        "examinations": dict(answers),
    }


@question("pools", of="card")
def pools(examined: Examined) -> Finding:
    """What does the norm pool over, and what does a token's output depend on?"""
    config = to_dict(examined.config("translation"))
    name = config["choices"]["norm"]
    tabled = on_table(next(option for option in options("norm") if option.name == name))
    left_out = {"option", *tabled.changed}
    norm = tabled.make(**{k: v for k, v in config["norm"].items() if k not in left_out})
    training = sees_in_words(dependence(norm))
    evaluation = sees_in_words(dependence(trained(norm, normal(*SHAPE, seed=7))))
    axes = axes_in_words(norm.pools)
    dependences = {"in training": training, "in evaluation": evaluation}
    memory = "; keeps statistics between batches" if isinstance(norm, RunningNorm) else ""
    return Finding(
        f"pools over {axes}{memory}; in training an output depends on {training}",
        {
            "pools": in_order(norm.pools),
            "sees": dependences,
            "parameters": sum(parameter.numel() for parameter in norm.parameters()),
        },
        AnswerTable(("", "depends, besides its own value, on"), list(dependences.items())),
        board={"pools": axes if norm.pools else "-"},
    )


@question("cost", of="card")
def cost(examined: Examined) -> Finding:
    """How long does a training step take compared with ln?

    The two models take turns in one process on one thread, so any other load on the machine slows
    down both. `python scripts/bench norms` times norms without a model.
    """
    configs = [to_dict(examined.config("translation", reference=is_ln)) for is_ln in (True, False)]
    runtime = Runtime.start(device=examined.device, precision="fp32", threads=1)
    sides = [start(side, each, runtime) for side, each in zip(_SIDES, configs, strict=True)]
    clock, rounds = StepClock(runtime.device), examined.sizes.rounds
    turns: list[list[float]] = [[], []]
    for turn in range(rounds):
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            span, _ = sides[side].take(_TIMED_STEPS, clock)
            turns[side].append(1000 * span.busy / _TIMED_STEPS)
    ratio = median(duration / first for first, duration in zip(*turns, strict=True))
    step = [median(turns[0]), median(turns[1]), ratio]
    return Finding(
        f"a step of training takes {ratio:.2f} times as long as with {REFERENCE}",
        {"rounds": rounds, "steps": _TIMED_STEPS * rounds, "step": step},
        AnswerTable((f"{REFERENCE}, ms", "this norm, ms", "ratio"), [step]),
        board={"step x ln": round(ratio, 2)},
    )


@question("depth", of="card")
def depth(examined: Examined) -> Finding:
    """How do the gradient and the first update vary with depth in a deep, narrow model?"""
    layers = examined.sizes.depth
    deep = ("model.dim=64", "model.ffn_dim=128", f"model.depth={layers}")
    subject = subject_of(to_dict(examined.config("translation", *deep)))
    values = gradients(subject).values
    changes, growth = first_update(subject), values["growth"]
    gradient = {name: each for name, each in values["layers"].items() if name in changes}
    last = [*changes.values()][-1]
    grows = " and ".join(f"x {value:.2g} over the {stack}" for stack, value in growth.items())
    return Finding(
        f"{layers}+{layers} layers: the gradient grows {grows}; one update changes the last "
        f"layer's output by {last:.0%}",
        {"layers": layers, "gradient": gradient, "growth": growth, "moved": changes},
        AnswerTable(
            ("layer", "gradient norm", "changed by one update"),
            [(name, each, changes[name]) for name, each in gradient.items()],
        ),
        board={"grad growth": growth.get("decoder"), "first update": last},
    )
