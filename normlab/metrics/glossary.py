"""Every metric of a record: its name, better direction, unit, description and source.

A score's key is the last part of its path, such as `bleu` for `test_2017/best_loss/bleu`. A probe
metric's key is its probe and name, such as `tid/mean` for `stability/tid/mean/encoder.0.self`.
`new_score` makes every score of a run. `score_text.py` formats names and values for readers.
"""

from typing import Literal, NamedTuple

from normlab.records.record import Score, is_probe_metric

NATS, SHARE, POINTS = "nats", "share", "0 to 100"
"""The units of losses, of accuracies, and of BLEU and chrF."""


class Metric(NamedTuple):
    """A metric as tables, charts and sentences show it.

    `better` is "-" if neither direction is better. `per` is what the unit is counted over, and
    `decimals` is the number of digits shown. `names_split` is set if the name of the split is
    always shown, as in `test loss`, because training and validation also have a loss.
    """

    name: str
    better: Literal["more", "less", "-"]
    unit: str
    what: str
    source: str = ""
    per: str = ""
    decimals: int = 2
    names_split: bool = False

    @property
    def whole_unit(self) -> str:
        """The unit and what it is counted over, such as `nats per token`."""
        return f"{self.unit} per {self.per}" if self.per else self.unit


_DETTMERS = "after Dettmers et al. 2022"
_DEVLIN = "Devlin et al. 2019"
_GUO = "Guo et al. 2017"
_PAPINENI = "Papineni et al. 2002"
_PARK = "Park et al. 2025"
_SHEN = "Shen et al. 2020"
_SHIFT = "after Ioffe and Szegedy 2015"
_WANG = "Wang, Wu and Huang 2022"
_XIONG = "Xiong et al. 2020"


def _loss(name: str, per: str, what: str, source: str = "", *, names_split: bool = False) -> Metric:
    """Return the metric of a negative log-likelihood."""
    return Metric(name, "less", NATS, what, source, per, decimals=3, names_split=names_split)


def _accuracy(name: str, what: str, source: str = "", *, names_split: bool = False) -> Metric:
    """Return the metric of a share of examples that are predicted correctly."""
    return Metric(name, "more", SHARE, what, source, decimals=3, names_split=names_split)


def _out_of_100(name: str, what: str, source: str) -> Metric:
    """Return a score of translations, which is also the unit of its differences: 2.0 BLEU."""
    return Metric(name, "more", POINTS, what, source)


def _count(name: str, unit: str, what: str, decimals: int = 2) -> Metric:
    """Return a metric of how much training something takes."""
    return Metric(name, "less", unit, what, decimals=decimals)


_NLL = "negative log-likelihood"
_EXAMPLE = "token or example"
_CONVERGED = "first validation within 1 % of the last loss, if the loss has settled"
_REACHED = "until a value is reached for good; infinite if it never is"
SCORES = {
    "loss": _loss(
        "loss",
        _EXAMPLE,
        "the training loss; of text, with label smoothing",
        names_split=True,
    ),
    "nll": _loss("NLL", "token", f"{_NLL}, without label smoothing", names_split=True),
    "perplexity": Metric(
        "perplexity", "less", "-", f"exp of the {_NLL} per token", names_split=True
    ),
    "mlm_loss": _loss("masked-token loss", "masked token", f"{_NLL} of masked tokens", _DEVLIN),
    "nsp_loss": _loss("sentence-pair loss", "pair", f"{_NLL} of next-sentence pairs", _DEVLIN),
    "teacher_forced_loss": _loss(
        "teacher-forced loss", "token", "over the windows of one_by_one/loss, each at once"
    ),
    "bits_per_character": Metric(
        "bits per character", "less", "bits", f"{_NLL} per character", decimals=3
    ),
    "calibration_error": Metric(
        "calibration error", "less", SHARE, "confidence against accuracy, over 15 bins", _GUO
    ),
    "accuracy": _accuracy("accuracy", "examples classified correctly", names_split=True),
    "mlm_accuracy": _accuracy(
        "masked-token accuracy", "masked tokens predicted correctly", _DEVLIN
    ),
    "mlm_accuracy_top5": _accuracy(
        "masked-token accuracy (top 5)", "masked tokens among the five most likely predictions"
    ),
    "nsp_accuracy": _accuracy("sentence-pair accuracy", "pairs classified correctly", _DEVLIN),
    "bleu": _out_of_100("BLEU", "sacreBLEU on detokenized, cased text", f"{_PAPINENI}; Post 2018"),
    "bleu_tok": _out_of_100(
        "tokenized BLEU", "BLEU on lowercased Moses tokens, as in IWSLT'14 papers", _PAPINENI
    ),
    "chrf": _out_of_100("chrF", "chrF2 on detokenized text, by sacreBLEU", "Popovic 2015"),
    "brevity_penalty": Metric(
        "brevity penalty",
        "more",
        "0 to 1",
        "BLEU's factor for translations that are too short",
        _PAPINENI,
    ),
    "length_ratio": Metric(
        "length ratio", "-", "ratio", "translation tokens over reference tokens; 1 is best"
    ),
    "steps_to": _count("updates to get there", "updates", _REACHED, decimals=0),
    "tokens_to": _count("tokens to get there", "tokens", _REACHED, decimals=0),
    "steps_to_converge": _count("updates to converge", "updates", _CONVERGED, decimals=0),
    "tokens_to_converge": _count("tokens to converge", "tokens", _CONVERGED, decimals=0),
}
"""The scores of a trained model, by the last part of their paths, such as `test/bleu`."""


def _observed(name: str, unit: str, what: str, source: str = "", per: str = "") -> Metric:
    """Return a metric that explains training and has no better direction."""
    return Metric(name, "-", unit, what, source, per, decimals=3)


_ACTIVATION, _SQUARED = "activation", "activation squared"
_BY_WEIGHT = "nats per token, per unit of weight"
_BY_ACTIVATION = "nats per token, per unit of activation"
_BY_VARIANCE = "nats per token, per squared unit of activation"
_VARIANCE = "share of the variance"
_DISTANCE = "relative distance"
LOGGED = {
    "grad_norm": _observed("gradient norm", "norm before clipping", "norm of the whole gradient"),
    "lr": _observed("learning rate", "-", "the learning rate of the step"),
    "padding_share": _observed("padding", "share of positions", "padding of the batch"),
    "penalty": _observed("penalty", "nats", "what a norm adds to the loss"),
}
"""The metrics that a run logs at each step as `train/NAME`, in addition to the scores."""
PROBES = {
    "activations/mean": _observed("mean activation", _ACTIVATION, "mean of a norm's input"),
    "activations/var": _observed("activation variance", _SQUARED, "variance of a norm's input"),
    "activations/largest": _observed(
        "largest activation", _ACTIVATION, "largest magnitude of an input"
    ),
    "activations/over_median": _observed("largest over median activation", "ratio", "by magnitude"),
    "activations/kurtosis": _observed(
        "kurtosis of activations", "0 if normal", "excess kurtosis", _PARK
    ),
    "activations/outliers": _observed(
        "features with outliers",
        "share of features",
        "features with outlying values",
        _DETTMERS,
    ),
    "attention/entropy": _observed("attention entropy", "share of log n", "of a row; 1 is uniform"),
    "attention/largest": _observed(
        "largest attention logit", "logit", "largest magnitude of a logit"
    ),
    "attention/saturated": _observed(
        "share of saturated rows", "share of rows", "with a weight near 1"
    ),
    "attention/slope": _observed(
        "slope of the softmax",
        "0 to 1",
        "how much gradient passes through the softmax",
    ),
    "attention/sink": _observed(
        "attention sinks",
        "share of heads",
        "heads whose mean weight on the first key, over the first 64 queries, is above 0.3",
        "Gu et al. 2025",
    ),
    "attention/sink_unmasked": _observed(
        "attention sinks over all keys",
        "share of heads",
        "the same without a causal mask, over all keys",
    ),
    "branches/rms": _observed("size of sub-layers' outputs", _ACTIVATION, "their root mean square"),
    "branches/crest": _observed(
        "crest factor of a sub-layer",
        "ratio",
        "largest output of a sub-layer over the root mean square",
    ),
    "drift/mean": _observed(
        "drift of the mean",
        "ratio",
        "squared change of features' means, over their variance",
        _SHIFT,
    ),
    "drift/deviation": _observed(
        "drift of the deviation",
        "ratio",
        "squared change of deviations, over the variance",
        _SHIFT,
    ),
    "fluctuation/mean": _observed(
        "fluctuation of the mean",
        _ACTIVATION,
        "batch mean minus running mean",
        _SHEN,
    ),
    "fluctuation/var": _observed(
        "fluctuation of the variance",
        _SQUARED,
        "batch variance minus running variance",
        _SHEN,
    ),
    "fluctuation/ratio": _observed(
        "variance between over within batches",
        "ratio",
        "variance between batches over the variance within",
    ),
    "fluctuation/excess": _observed(
        "fluctuation over that of independent tokens",
        "ratio",
        "the ratio times the number of tokens; 1 if tokens are independent",
    ),
    "grad_norm/mean": _observed("mean gradient norm", _BY_WEIGHT, "before clipping"),
    "grad_norm/max": _observed("largest gradient norm", _BY_WEIGHT, "largest norm of the gradient"),
    "gradients/norm": _observed(
        "gradient norm", _BY_WEIGHT, "norm of the gradient by layer", _XIONG
    ),
    "gradients/kind": _observed("gradient norm by kind", _BY_WEIGHT, "by kind of parameter"),
    "gradients/spread": _observed(
        "largest over smallest gradient", "ratio", "of the layers' norms"
    ),
    "independence/icc": _observed(
        "correlation within a sample",
        _VARIANCE,
        "intraclass correlation: shared by tokens of a sample; 0 if independent",
    ),
    "independence/effect": _observed(
        "inflation of the mean's variance",
        "ratio",
        "variance of a mean, relative to independent tokens",
    ),
    "independence/distance": _observed(
        "squared distance from the running mean",
        "ratio",
        "squared, of batch and running mean; 1 if independent",
    ),
    "independence/gradient": _observed(
        "inflation of the gradient",
        "ratio",
        "squared sum of gradients over the sum of squares",
    ),
    "independence/position": _observed(
        "correlation at a position",
        _VARIANCE,
        "shared by tokens at one position of different samples; 0 if identically distributed",
    ),
    "independence/shuffled": _observed(
        "correlation within shuffled samples",
        _VARIANCE,
        "the icc of the same tokens, shuffled",
    ),
    "length_change/loss_before": _observed("loss before the change", NATS, "its mean", per="token"),
    "length_change/loss_jump": _observed(
        "jump of the loss", NATS, "its rise at the change", per="token"
    ),
    "length_change/recovery": _observed(
        "updates to recover",
        "updates",
        "until the loss is back at its earlier value",
    ),
    "length_change/tid_before": _observed("TID before the change", _DISTANCE, "tid/mean", _WANG),
    "length_change/tid_after": _observed("TID after the change", _DISTANCE, "tid/mean", _WANG),
    "padding/share": _observed("padding", "share of positions", "padding of a batch"),
    "padding/max": _observed("largest share of padding", "share of positions", "of the run"),
    "padding/tokens": _observed("tokens in one statistic", "tokens", "of the batch"),
    "rank/participation": _observed(
        "participation ratio", "features", "of the stream's covariance"
    ),
    "rank/effective": _observed(
        "effective rank", "features", "of the stream", "Roy and Vetterli 2007"
    ),
    "residual/rms": _observed(
        "size of the residual stream", _ACTIVATION, "root mean square", _XIONG
    ),
    "residual/growth": _observed(
        "growth of the residual stream",
        "ratio",
        "the last root mean square over the first of a stack",
        _XIONG,
    ),
    "saturation/share": _observed(
        "saturated outputs",
        "share of values",
        "outputs near the bound of a bounded norm's function",
    ),
    "spikes/count": _observed("loss spikes", "spikes", "sudden rises of the training loss"),
    "spikes/size": _observed("largest loss spike", NATS, "its rise", per="token"),
    "spikes/recovery": _observed(
        "updates to recover from a spike",
        "updates",
        "until the loss is back at its earlier value",
    ),
    "statistics_gradient/mean": _observed(
        "gradient of the mean",
        _BY_ACTIVATION,
        "gradient through the batch's mean",
        _SHEN,
    ),
    "statistics_gradient/var": _observed(
        "gradient of the variance",
        _BY_VARIANCE,
        "gradient through the batch's variance",
        _SHEN,
    ),
    "tid/mean": _observed("distance from the running mean", _DISTANCE, "TID of the mean", _WANG),
    "tid/var": _observed(
        "distance from the running deviation", _DISTANCE, "TID of the variance", _WANG
    ),
    "updates/ratio": _observed("update size", "share of the weights", "relative to their norm"),
    # Occurs in published records, but is no longer measured.
    "grad_norm/noise": _observed(
        "noise of the gradient norm",
        "ratio",
        "deviation of the gradient's norm over its mean, within windows",
    ),
    "grad_norm/nonfinite": _observed(
        "steps with an infinite gradient", "steps", "or one that is no number"
    ),
    "tid/code_mean": _observed(
        "TID of the mean in code", _DISTANCE, "as the released code logs it", _WANG
    ),
    "tid/code_var": _observed("TID of the variance in code", _DISTANCE, "as released", _WANG),
}
"""The metrics of probes, logged as `stability/PROBE/NAME`, for the whole model or per site."""


def metric_key(name: str) -> str:
    """Return the key of a metric's path: `bleu` for `test/bleu`, `tid/mean` for a probe's."""
    parts = name.split("/")
    if is_probe_metric(name):
        return "/".join(parts[1:3])
    counted = next((part for part in ("steps_to", "tokens_to") if part in parts), None)
    return counted or parts[-1]


def metric(name: str) -> Metric | None:
    """Return the metric of a path in a record, or None if it is not in the glossary."""
    metrics = PROBES if is_probe_metric(name) else SCORES
    return metrics.get(metric_key(name)) or (
        LOGGED.get(metric_key(name)) if name.startswith("train/") else None
    )


def has_direction(name: str) -> bool:
    """Return whether a metric has a better direction; True for a user's own metric."""
    known = metric(name)
    return known is None or known.better != "-"


def new_score(name: str, value: float, n: int, signature: str | None = None) -> Score:
    """Return a score, given its name or path and its value over `n` items.

    The glossary says whether a higher value is better. Raise KeyError for a name that it does not
    have. For `length_ratio`, neither direction is better, because 1 is best. It is recorded as
    if higher were better, like the brevity penalty, which is computed from it.
    """
    higher_is_better = SCORES[metric_key(name)].better != "less"
    return Score(value, higher_is_better, n, signature)


def is_loss(name: str) -> bool:
    """Return whether a score is a negative log-likelihood in nats."""
    known = metric(name)
    return known is not None and known.better == "less" and known.unit == NATS


def is_accuracy(name: str) -> bool:
    """Return whether a score is a share of examples that are predicted correctly."""
    known = metric(name)
    return known is not None and known.better == "more" and known.unit == SHARE
