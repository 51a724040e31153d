"""Questions that probes answer, on one fixed batch of held-out examples."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import fmean
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from normlab.config.instantiation import instantiate
from normlab.config.registry import option_settings
from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.findings.relative_change import percent
from normlab.inspection.model.built_model import BuiltModel
from normlab.probes.activations import MASSIVE, TIMES
from normlab.probes.base import Probe

TOKENS, PER_FEATURE, EXAMPLES = 4096, 10, 32
"""The smallest numbers of held-out tokens, of tokens per feature, and of examples to use."""
Places = Mapping[str, Mapping[str, float]]
"""A probe's metrics, keyed by place in the model and then by name."""


class ProbeAnswer(NamedTuple):
    """The text of an answer, and the numbers to compare between runs.

    `board` has the most important number first. If `worth_a_look`, the verdict is `look`.
    """

    text: str
    board: Mapping[str, float]
    worth_a_look: bool = False

    @property
    def value(self) -> float | None:
        """The most important number, or None if there is no number."""
        return next(iter(self.board.values()), None)


def finding_of_probe(
    built: BuiltModel, name: str, answer: Callable[[Places], ProbeAnswer]
) -> Finding:
    """Run a batch of held-out examples with the probe `name`, and let `answer` judge its metrics.

    The model is in eval mode, and the batch is the same for all runs with the same data.
    """
    probe = instantiate(option_settings("probe", name, "probe"), "probe", Probe)
    with attached(probe, built.model), torch.no_grad():
        if probe.why_not:
            return Finding.none(probe.why_not)
        batch = built.batch("valid", held_out(built))
        probe.before_forward(0)
        built.losses(batch)
        by_place = probe.collect()
    places = {
        place: {metric: float(x) for metric, x in of.items()} for place, of in by_place.items()
    }
    if not places:
        return Finding.none(f"{batch.tokens} held-out tokens are too few for this model")
    return _finding(answer(places), places, batch.tokens)


@contextmanager
def attached(probe: Probe, model: nn.Module) -> Iterator[None]:
    """Attach a probe to a model, and detach it at the end."""
    probe.attach(model)
    try:
        yield
    finally:
        probe.detach()


def _finding(answer: ProbeAnswer, places: Places, tokens: int) -> Finding:
    """Return the finding on a number of held-out tokens, with a table of all metrics by place."""
    names = list(dict.fromkeys(metric for of in places.values() for metric in of))
    rows = [(place, *map(of.get, names)) for place, of in places.items()]
    return Finding(
        answer.text,
        {"tokens": tokens, "places": places},
        AnswerTable(("place", *names), rows),
        board=answer.board,
        verdict="look" if answer.worth_a_look else "fine",
        value=answer.value,
    )


def held_out(built: BuiltModel) -> list[int]:
    """Return the indices of held-out examples with enough tokens on each side, or of all."""
    needed = max(TOKENS, PER_FEATURE * built.config["model"].get("dim", 0))
    lengths = built.task.lengths("valid")
    order = np.random.default_rng(0).permutation(len(lengths))
    before = int((lengths[order].cumsum(0).min(1) < needed).sum())
    return np.sort(order[: max(before + 1, EXAMPLES)]).tolist()


@question("attention", of="model", trained=True)
def attention(built: BuiltModel) -> Finding:
    """Do heads attend to the first token, and how concentrated is their attention?

    With A_i1 the weight of query i on the first key, and T = min(64, n) for n queries:

        s     1/T sum_{i <= T} A_i1
        sink  share of (sequence, layer, head) with s > 0.3        (Gu et al. 2025, with T = 64)

    Without a causal mask, T is n, and the metric is called `sink_unmasked`. Sequences need 16 keys:
    for uniform causal attention, s is 0.07 at T = 64, but 0.31 at T = 9. With task=lm, the first
    token marks the beginning of a text. The probe `attention` defines the other columns.
    """
    return finding_of_probe(built, "attention", _attention_answer)


def _attention_answer(places: Places) -> ProbeAnswer:
    shares_in_words: list[str] = []
    board: dict[str, float] = {}
    for name, mask in (("sink", "with a causal mask"), ("sink_unmasked", "without a causal mask")):
        if shares := [of[name] for of in places.values() if name in of]:
            board[name] = fmean(shares)
            shares_in_words.append(f"{percent(board[name])} of heads {mask}")
    sinks = f"the first token is a sink in {' and '.join(shares_in_words)}"
    none = "sinks are not counted, because no sequence has 16 tokens"
    entropy = percent(fmean(of["entropy"] for of in places.values()))
    text = f"{sinks if shares_in_words else none}; the entropy is {entropy} of the largest possible"
    return ProbeAnswer(text, board)


@question("activations", of="model", trained=True)
def activations(built: BuiltModel) -> Finding:
    """How far does the largest activation exceed the median, and where is it?

        over_median  max |x| / median |x|

    over the real tokens and features of each norm's input x, which is the residual stream in
    pre-norm models. The feature and the position of the maximum are counted from 0. Sun et al. 2024
    call a value massive if |x| > 100 and |x| is about 1000 times the median. With post-norm, the
    scale of the stream is fixed, so compare ratios. The probe `activations` defines the other
    columns.
    """
    return finding_of_probe(built, "activations", _activations_answer)


def _activations_answer(places: Places) -> ProbeAnswer:
    place, most = max(places.items(), key=lambda each: each[1]["over_median"])
    massive = [
        name for name, of in places.items() if of["largest"] > MASSIVE and of["over_median"] > TIMES
    ]
    text = (
        f"{most['over_median']:.3g} times the median at {place} ({most['largest']:.3g} in feature "
        f"{most['feature']:.0f} at position {most['position']:.0f}); massive in {len(massive)} of "
        f"{len(places)} places"
    )
    board = {"max / median": most["over_median"]}
    return ProbeAnswer(text, board, worth_a_look=bool(massive))


@question("rank", of="model", trained=True)
def rank(built: BuiltModel) -> Finding:
    """How many dimensions does the residual stream use?

    With l the eigenvalues of the covariance of N tokens' states, and s = sqrt(l):

        participation  (sum l)^2 / sum l^2
        effective      exp(-sum p log p), p = s / sum s        (Roy and Vetterli 2007)

    after each sub-layer; both are between 1 and the width D. N must be at least 10 D. States are
    centered; otherwise one massive activation would bring both close to 1. Compare at equal N.
    """
    return finding_of_probe(built, "rank", _rank_answer)


def _rank_answer(places: Places) -> ProbeAnswer:
    ends = {place.split(".")[0]: (place, of) for place, of in places.items()}
    text = "; ".join(
        f"after {place} an effective rank of {of['effective']:.3g} and a participation ratio of "
        f"{of['participation']:.3g}"
        for place, of in ends.values()
    )
    last = [*places.values()][-1]
    return ProbeAnswer(
        text, {"effective rank": last["effective"], "participation": last["participation"]}
    )


@question("saturation", of="model", trained=True)
def saturation(built: BuiltModel) -> Finding:
    """What share of values does the norm's function map close to its bound?

        share  share of values with |f(alpha x + shift)| > 0.964

    over real tokens and features, before gain and bias, where f has the bound 1, such as tanh
    (DyT), erf (Derf) and ISRU. 0.964 is tanh(2), where the slope is 7.1 % of DyT's largest.
    """
    return finding_of_probe(built, "saturation", _saturation_answer)


def _saturation_answer(places: Places) -> ProbeAnswer:
    most, place = max((of["share"], place) for place, of in places.items())
    mean = fmean(of["share"] for of in places.values())
    text = f"{percent(mean)} on average, at most {percent(most)} ({place})"
    return ProbeAnswer(text, {"saturated": mean})
