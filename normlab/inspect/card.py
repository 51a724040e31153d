"""The card of a norm: its scale, its runs, and the questions about the norm by itself."""

import hashlib
import json
import multiprocessing
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from normlab.bench.speed import Clock, start
from normlab.config.compose import compose, to_dict
from normlab.config.registry import options
from normlab.config.suggest import check_given_once
from normlab.inspect.axes import Sees, axes_in_words, dependence, distinct, in_order
from normlab.inspect.depth import first_update, gradients
from normlab.inspect.model import subject_of
from normlab.inspect.question import Finding, Question, Table, question, questions
from normlab.inspect.subject import Norm, on_table, remembers, trained
from normlab.records.labels import norm_label
from normlab.records.record import fingerprint, plain
from normlab.train.numerics import NUMERICS, own_norms
from normlab.train.runtime import Runtime

if TYPE_CHECKING:
    from omegaconf import DictConfig

FORMAT = "normlab.card/1"
REFERENCE = "ln"
STAGES = ("quiet", "training", "trained")
"""A quiet question has the processor to itself; trained ones read the translation run."""
_OF_A_CARD = re.compile(r"\+?((\w+_)?norm|placement)([.@]\w+)*=.*")
_TIMED_STEPS = 4
_SIDES = (REFERENCE, "this norm")
_UNSAFE = re.compile(r"[^\w.+-]")


@dataclass(frozen=True)
class Scale:
    """How large the runs of a card are.

    `text` are the keys of every run on text, `translation` those of the translation task alone,
    `rate` those of the runs that try a rate, of which there are at most `most_rates`. `depth` is
    the layers per stack of the model that gradients are followed through, `rounds` the turns of
    each side in a timing.
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
    rate: tuple[str, ...] = ()


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
    """A norm that a card is made of: its name, such as `bn-ghost=4`, and what chooses it.

    Findings and runs are kept in `folder`.
    """

    name: str
    overrides: tuple[str, ...]
    scale: str
    folder: Path
    device: str = "cpu"

    @property
    def sizes(self) -> Scale:
        """The scale itself."""
        return SCALES[self.scale]

    def seeds(self, task: str) -> tuple[int, ...]:
        """Return the seeds of the short runs of a task."""
        return self.sizes.picture_seeds if task == "pictures" else self.sizes.seeds

    def steps(self, task: str) -> int:
        """Return the updates of a short run of a task."""
        return self.sizes.picture_steps if task == "pictures" else self.sizes.steps

    def config(self, task: str, *more: str, seed: int = 1, reference: bool = False) -> "DictConfig":
        """Return the config of a run of a task, of the norm or of layer norm in its place."""
        sizes = self.sizes
        steps = self.steps(task)
        own = {"pictures": sizes.pictures, "translation": (*sizes.text, *sizes.translation)}
        text = (*sizes.text, *_NO_TESTS, "task.length_buckets=[]")
        placement = [word for word in self.overrides if word.startswith("placement")]
        return compose(
            [
                *([f"norm={REFERENCE}", *placement] if reference else self.overrides),
                *(*TASKS[task], *own.get(task, text)),
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

    Raises ValueError for a key that the card sets itself, an unknown scale, and no norm.
    """
    check_given_once(arguments)
    own, chosen = {"scale": "cpu", "device": "cpu"}, list[str]()
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key in own:
            own[key] = value
        elif _OF_A_CARD.fullmatch(argument):
            chosen.append(argument)
        else:
            raise ValueError(
                f"{argument!r}: the runs of a card are fixed, so that cards compare; a card takes "
                "norm=OPTION, norm.KEY=VALUE, norm@SITE=OPTION, placement, scale and device"
            )
    if own["scale"] not in SCALES:
        raise ValueError(f"scale={own['scale']}: a card has {' and '.join(SCALES)}")
    if not any(argument.startswith("norm=") for argument in chosen):
        raise ValueError("whose card? give norm=OPTION; `normlab list norms` lists the options")
    choices = to_dict(compose(chosen))["choices"]
    placement = [] if choices["placement"] == "pre" else [choices["placement"]]
    changed = [text.removeprefix("norm.") for text in chosen if "." in text.partition("=")[0]]
    name = "-".join([norm_label(choices), *placement, *changed])
    home = folder / own["scale"] / _UNSAFE.sub("_", name)
    return Examined(name, tuple(chosen), own["scale"], home, own["device"])


def carry_out(
    subject: Examined, asked: Sequence[Question], *, processes: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each finding as it comes, as plain values.

    Several questions at a time where they only train or read.
    """
    for stage in STAGES:
        names = [each.name for each in asked if each.stage == stage]
        alone = len(names) if stage == "quiet" or processes == 1 else 0
        if stage == "trained":  # they would all wait for the lock of one run
            alone = max(alone, 1)
        for name in names[:alone]:
            yield name, examine(subject, name)
        if names[alone:]:
            yield from _together(subject, names[alone:], processes)


def _together(
    subject: Examined, names: Sequence[str], processes: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    with ProcessPoolExecutor(
        min(processes, len(names)),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=signal.signal,  # Ctrl-C is for the parent: a run takes it as its own
        initargs=(signal.SIGINT, signal.SIG_IGN),
    ) as pool:
        waiting = {pool.submit(examine, subject, name): name for name in names}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def examine(subject: Examined, name: str) -> dict[str, Any]:
    """Ask one question."""
    (asked,) = questions("card", [name])
    return plain(asked.ask(subject).plain(asked))


def kept(subject: Examined, path: Path) -> dict[str, Any]:
    """Return the findings of a `card.json` by name, if it is of the same norm and code of runs."""
    try:
        card = json.loads(path.read_text("utf-8"))
        return card["examinations"] if card["key"] == key_of(subject) else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}  # there is none, or it is damaged: it is made again


def key_of(subject: Examined) -> str:
    """Return what a finding depends on: the norm, the scale, the code of norms and runs."""
    config = to_dict(subject.config("translation"))
    parts = [
        *(subject.overrides, subject.device, asdict(subject.sizes)),
        *(fingerprint(config), NUMERICS, own_norms(config)),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def card(
    subject: Examined, environment: Mapping[str, Any], findings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what `card.json` holds, as plain values."""
    config = to_dict(subject.config("translation"))
    described = {option.name: option.description for option in options("norm")}
    return {
        "format": FORMAT,
        "key": key_of(subject),
        "name": subject.name,
        "description": described[config["choices"]["norm"]],
        "overrides": list(subject.overrides),
        "scale": subject.scale,
        "seeds": list(subject.sizes.seeds),
        "norm": config["norm"],
        "environment": plain(dict(environment)),
        "examinations": dict(findings),
    }


@question("pools", of="card", stage="quiet")
def pools(examined: Examined) -> Finding:
    """What does the norm pool over, and what does a token's output depend on?"""
    config = to_dict(examined.config("translation"))
    name = config["choices"]["norm"]
    shown = on_table(next(option for option in options("norm") if option.name == name))
    left_out = {"option", *shown.changed}
    norm = shown.make(**{k: v for k, v in config["norm"].items() if k not in left_out})
    seen = {
        "in training": _sees(lambda: norm),
        "in evaluation": _sees(lambda: trained(norm, distinct((2, 3, 4)))),
    }
    values = {
        "pools": in_order(norm.pools),
        "sees": seen,
        "statistics_of_its_own": remembers(norm),
        "batch_independent": norm.batch_independent,
        "incremental": norm.incremental,
        "parameters": sum(parameter.numel() for parameter in norm.parameters()),
    }
    axes = axes_in_words(norm.pools)
    kept = "; keeps statistics between batches" if remembers(norm) else ""
    answer = f"pools over {axes}{kept}; in training an output depends on {seen['in training']}"
    table = Table(("", "depends, besides its own value, on"), list(seen.items()))
    return Finding(answer, values, table, board={"pools": axes if norm.pools else "-"})


def _sees(norm: Callable[[], Norm]) -> str:
    try:
        return Sees.of(dependence(norm())).in_words()
    except (ValueError, RuntimeError) as error:
        return f"(cannot be tried on 2 x 3 x 4 values: {str(error).splitlines()[0]})"


@question("cost", of="card", stage="quiet")
def cost(examined: Examined) -> Finding:
    """How long does a step of training take compared with ln?

    Both sides take turns in one process on one thread, so that what else the machine does meets
    both. `python scripts/bench norms` times norms by themselves.
    """
    configs = [to_dict(examined.config("translation", reference=own)) for own in (True, False)]
    runtime = Runtime.start(device=examined.device, precision="fp32", threads=1)
    sides = [start(side, each, runtime) for side, each in zip(_SIDES, configs, strict=True)]
    clock, rounds = Clock(runtime.device), examined.sizes.rounds
    turns: list[list[float]] = [[], []]
    for turn in range(rounds):
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            span, _ = sides[side].take(_TIMED_STEPS, clock)
            turns[side].append(1000 * span.busy / _TIMED_STEPS)
    ratio = median(own / first for first, own in zip(*turns, strict=True))
    step = [median(turns[0]), median(turns[1]), ratio]
    return Finding(
        f"a step of training takes {ratio:.2f} times as long as with {REFERENCE}",
        {"rounds": rounds, "steps": _TIMED_STEPS * rounds, "step": step},
        Table((f"{REFERENCE}, ms", "this norm, ms", "ratio"), [step]),
        board={"step x ln": round(ratio, 2)},
    )


@question("depth", of="card", stage="training")
def depth(examined: Examined) -> Finding:
    """How do gradient and first update change with depth, in a deep narrow model?"""
    layers = examined.sizes.depth
    deep = ("model.dim=64", "model.ffn_dim=128", f"model.depth={layers}")
    subject = subject_of(to_dict(examined.config("translation", *deep)))
    found = gradients(subject)
    moved = first_update(subject)
    gradient = {name: each for name, each in found.values["layers"].items() if name in moved}
    growth = found.values["growth"]
    values = {"layers": layers, "gradient": gradient, "growth": growth, "moved": moved}
    shown = [row[0] for row in found.table.rows if row[0] in moved]
    rows = [(name, gradient[name], moved[name]) for name in shown]
    *_, last = moved.values()
    grows = " and ".join(f"x {value:.2g} over the {stack}" for stack, value in growth.items())
    answer = (
        f"{layers}+{layers} layers: the gradient grows {grows}; one update changes the last "
        f"layer's output by {last:.0%}"
    )
    table = Table(("layer", "gradient norm", "moved by one update"), rows)
    board = {"grad growth": growth.get("decoder"), "first update": last}
    return Finding(answer, values, table, board=board)
