"""The questions of a card about the bare norm, its cost, and the trained translation model."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from statistics import median

from normlab.bench.norms import EVALUATION, TRAINING, Shape, alone, measure
from normlab.bench.speed import Clock, Steps, start
from normlab.config.compose import to_dict
from normlab.config.registry import options
from normlab.inspect.axes import Sees, axes_in_words, dependence, distinct, in_order
from normlab.inspect.card import REFERENCE, Examined
from normlab.inspect.depth import first_update, gradients
from normlab.inspect.model import MODES, Subject, subject_of, subject_of_run
from normlab.inspect.question import Finding, Table, question, questions
from normlab.inspect.runs import carry_out
from normlab.inspect.subject import Norm, on_table, remembers, trained
from normlab.records.store import RunStore
from normlab.train.runtime import Runtime

_TIMED_STEPS = 4
_SIDES = (REFERENCE, "this norm")


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
    """What does it cost compared with ln: by itself, and in a step of training?

    Both sides take turns in one process on one thread, so that what else the machine does meets
    both.
    """
    rounds = examined.sizes.rounds
    configs = [to_dict(examined.config("translation", reference=own)) for own in (True, False)]
    sides = list(zip(_SIDES, configs, strict=True))
    runtime = Runtime.start(device=examined.device, precision="fp32", threads=1)
    shape = Shape(features=configs[0]["model"]["dim"])
    nodes = {side: config["norm"] for side, config in sides}
    report = measure(alone(nodes, shape, runtime), runtime, rounds=rounds, seconds=0.05)
    training, evaluation = (
        [*(side["milliseconds"]["median"] for side in group), group[1]["ratio_to_first"]]
        for group in (report["groups"][kind] for kind in (TRAINING, EVALUATION))
    )
    contenders = [start(side, config, runtime) for side, config in sides]
    step = _steps(contenders, Clock(runtime.device), rounds)
    values = {
        **{"shape": str(shape), "rounds": rounds, "steps": _TIMED_STEPS * rounds},
        **{"alone_training": training, "alone_evaluation": evaluation, "step": step},
    }
    rows = [
        (f"by itself, forward and backward, {shape}", *training),
        (f"by itself, evaluation, {shape}", *evaluation),
        ("a step of training the translation model", *step),
    ]
    answer = (
        f"by itself {training[2]:.2f} times {REFERENCE} in training and {evaluation[2]:.2f} times "
        f"in evaluation; a step of training takes {step[2]:.2f} times as long"
    )
    table = Table(("", f"{REFERENCE}, ms", "this norm, ms", "ratio"), rows)
    board = {"alone x ln": round(training[2], 2), "step x ln": round(step[2], 2)}
    return Finding(answer, values, table, board=board)


def _steps(contenders: list[Steps], clock: Clock, rounds: int) -> list[float]:
    """Return milliseconds per step of both sides, and the median ratio, in alternating turns."""
    turns: list[list[float]] = [[], []]
    for turn in range(rounds):
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            span, _ = contenders[side].take(_TIMED_STEPS, clock)
            turns[side].append(1000 * span.busy / _TIMED_STEPS)
    ratios = [own / first for first, own in zip(*turns, strict=True)]
    return [median(turns[0]), median(turns[1]), median(ratios)]


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


def of_the_trained(examined: Examined, *names: str) -> dict[str, Finding]:
    """Return the answers about the translation run of the first seed; empty if it diverged."""
    subject = _trained_model(examined)
    return {each.name: each.ask(subject) for each in questions("model", names) if subject}


@lru_cache(maxsize=1)  # several questions ask the same model
def _trained_model(examined: Examined) -> Subject | None:
    config = examined.config("translation", seed=examined.sizes.seeds[0])
    if carry_out(config).outcome.status != "finished":
        return None
    return subject_of_run(RunStore(config.runs_dir).run_dir(to_dict(config)), [])


_DIVERGED = Finding.none("the translation run diverged, so there is no trained model")


@question("company", of="card", stage="trained", claims=(7, 8, 16))
def company(examined: Examined) -> Finding:
    """Do padding and the rest of the batch change the output of a sentence?"""
    found = of_the_trained(examined, "batch_mates", "padding")
    if not found:
        return _DIVERGED
    mates, padded = found.values()
    moved: dict[str, dict[str, float]] = {"other sentences": {}, "padding": {}}
    for mode in MODES:
        if not mates.why_not:
            moved["other sentences"][mode] = max(mates.values["values"][mode].values())
        if not padded.why_not:
            moved["padding"][mode] = max(x[-1] for x in padded.values["moved"][mode].values())
    rows = [(by, *(shares.get(mode) for mode in MODES)) for by, shares in moved.items()]
    by_mates, by_padding = (shares.get("training") for shares in moved.values())
    return Finding(
        f"other sentences: {mates.answer}; padding: {padded.answer}",
        {name: each.values for name, each in found.items()},
        Table(("moved by", "in training", "in evaluation"), rows),
        board={"mates": by_mates, "padding": by_padding},
    )


@question("inference", of="card", stage="trained", claims=(12, 13, 14, 15))
def inference(examined: Examined) -> Finding:
    """What do running statistics cost, compared with the batch's own that training had?"""
    found = of_the_trained(examined, "statistics").get("statistics", _DIVERGED)
    gap = {} if found.why_not else {"train-eval gap": found.values.get("gap", 0.0)}
    return replace(found, board=gap)


@question("stepwise", of="card", stage="trained", claims=(17, 41))
def stepwise(examined: Examined) -> Finding:
    """Does decoding token by token compute the same as whole sentences?"""
    found = of_the_trained(examined, "stepwise").get("stepwise", _DIVERGED)
    apart = {} if found.why_not else {"stepwise": found.values["eval"]["difference"]["mean"]}
    return replace(found, board=apart)


@question("health", of="card", stage="trained")
def health(examined: Examined) -> Finding:
    """What do the other questions of `normlab inspect` say of the trained model?"""
    names = ("gradients", "leak", "batch_mean", "outlier")
    found = of_the_trained(examined, *names)
    if not found:
        return _DIVERGED
    asked = {each.name: each.text for each in questions("model", names)}
    rows = [(f"{name}: {asked[name]}", each.answer) for name, each in found.items()]
    values = {name: each.values for name, each in found.items()}
    return Finding(found["leak"].answer, values, Table(("question", "answer"), rows))
