"""Every metric of a record: its name for readers, better direction, unit, description and source.

The key of a score is the last part of its path, such as `bleu` for `test_2017/best_loss/bleu`. The
key of a probe's metric is the probe and the metric's name, such as `tid/mean` for
`stability/tid/mean/encoder.0.self`. `new_score` makes every score of a run. `score_text.py` formats
names and values for readers.
"""

from typing import Literal, NamedTuple

from normlab.records.record import Score, is_probe_metric

NATS, SHARE, POINTS = "nats", "share", "0 to 100"
"""The units of losses, of accuracies, and of BLEU and chrF."""


class Metric(NamedTuple):
    """A metric as tables, charts and sentences show it.

    Attributes:
        better: the better direction, or "-" if neither is better.
        what: a description, for the reference.
        per: what the unit is per, such as `token` in nats per token.
        decimals: the number of decimals shown.
        names_split: whether the split is always named, as in `test loss`, because training and
            validation also have a loss.
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
        """The unit with its `per`, such as `nats per token`."""
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
    """Return a negative log-likelihood."""
    return Metric(name, "less", NATS, what, source, per, decimals=3, names_split=names_split)


def _accuracy(name: str, what: str, source: str = "", *, names_split: bool = False) -> Metric:
    """Return a share of examples that are predicted correctly."""
    return Metric(name, "more", SHARE, what, source, decimals=3, names_split=names_split)


def _out_of_100(name: str, what: str, source: str) -> Metric:
    """Return a score of translations, whose name is also the unit of differences: 2.0 BLEU."""
    return Metric(name, "more", POINTS, what, source)


def _count(name: str, unit: str, what: str, decimals: int = 2) -> Metric:
    """Return an amount of training: updates or tokens."""
    return Metric(name, "less", unit, what, decimals=decimals)


_NLL = "negative log-likelihood"
_EXAMPLE = "token or example"
_CONVERGED = "first validation within 1 % of the last loss, if the loss has settled"
_REACHED = "training until a value is reached for good; infinite if it never is"
SCORES = {
    "loss": _loss(
        "loss", _EXAMPLE, "the training loss, for text with label smoothing", names_split=True
    ),
    "nll": _loss("NLL", "token", f"{_NLL}, without label smoothing", names_split=True),
    "perplexity": Metric(
        "perplexity", "less", "-", f"exp of the {_NLL} per token", names_split=True
    ),
    "mlm_loss": _loss("masked-token loss", "masked token", f"{_NLL} of masked tokens", _DEVLIN),
    "nsp_loss": _loss("sentence-pair loss", "pair", f"{_NLL} of next-sentence pairs", _DEVLIN),
    "teacher_forced_loss": _loss(
        "teacher-forced loss",
        "token",
        "loss over the windows of one_by_one/loss, each in a single forward pass",
    ),
    "bits_per_character": Metric(
        "bits per character", "less", "bits", f"{_NLL} per character", decimals=3
    ),
    "calibration_error": Metric(
        "calibration error",
        "less",
        SHARE,
        "difference between confidence and accuracy, over 15 bins",
        _GUO,
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
    """Return a metric without a better direction."""
    return Metric(name, "-", unit, what, source, per, decimals=3)


_ACTIVATION, _SQUARED = "activation", "activation squared"
_BY_WEIGHT = "nats per token, per unit of weight"
_BY_ACTIVATION = "nats per token, per unit of activation"
_BY_VARIANCE = "nats per token, per squared unit of activation"
_VARIANCE = "share of the variance"
_DISTANCE = "relative distance"
LOGGED = {
    "grad_norm": _observed("gradient norm", "norm before clipping", "norm of the whole gradient"),
    "lr": _observed("learning rate", "-", "learning rate of the step"),
    "padding_share": _observed("padding", "share of positions", "share of padding in the batch"),
    "penalty": _observed("penalty", "nats", "loss terms of the norms, such as RBN's penalty"),
}
"""The metrics that a run logs at each step as `train/NAME`, in addition to the scores."""
PROBES = {
    "activations/mean": _observed("mean activation", _ACTIVATION, "mean of a norm's input"),
    "activations/var": _observed("activation variance", _SQUARED, "variance of a norm's input"),
    "activations/largest": _observed(
        "largest activation", _ACTIVATION, "largest magnitude of an input"
    ),
    "activations/over_median": _observed(
        "largest over median activation", "ratio", "largest over median magnitude of an input"
    ),
    "activations/kurtosis": _observed(
        "kurtosis of activations", "0 if normal", "excess kurtosis of a norm's input", _PARK
    ),
    "activations/outliers": _observed(
        "features with outliers",
        "share of features",
        "features whose root mean square is far above that of all values",
        _DETTMERS,
    ),
    "attention/entropy": _observed(
        "attention entropy", "share of log n", "entropy of a row of attention; 1 if it is uniform"
    ),
    "attention/largest": _observed(
        "largest attention logit", "logit", "largest magnitude of a logit"
    ),
    "attention/saturated": _observed(
        "share of saturated rows", "share of rows", "rows of attention with a weight near 1"
    ),
    "attention/slope": _observed(
        "slope of the softmax", "0 to 1", "how strongly attention weights respond to the logits"
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
        "attention/sink without a causal mask, over all queries",
    ),
    "branches/rms": _observed("size of sub-layers' outputs", _ACTIVATION, "root mean square"),
    "branches/crest": _observed(
        "crest factor of a sub-layer",
        "ratio",
        "largest magnitude of a sub-layer's output over its root mean square",
    ),
    "drift/mean": _observed(
        "drift of the mean",
        "ratio",
        "squared change of features' means, divided by the features' variance",
        _SHIFT,
    ),
    "drift/deviation": _observed(
        "drift of the deviation",
        "ratio",
        "squared change of features' deviations, divided by the features' variance",
        _SHIFT,
    ),
    "fluctuation/mean": _observed(
        "fluctuation of the mean", _ACTIVATION, "batch mean minus running mean", _SHEN
    ),
    "fluctuation/var": _observed(
        "fluctuation of the variance", _SQUARED, "batch variance minus running variance", _SHEN
    ),
    "fluctuation/ratio": _observed(
        "variance between over within batches",
        "ratio",
        "variance between batches over the variance within",
    ),
    "fluctuation/excess": _observed(
        "fluctuation over that of independent tokens",
        "ratio",
        "fluctuation/ratio times the number of tokens; 1 if tokens are independent",
    ),
    "grad_norm/mean": _observed("mean gradient norm", _BY_WEIGHT, "mean norm before clipping"),
    "grad_norm/max": _observed("largest gradient norm", _BY_WEIGHT, "largest norm before clipping"),
    "gradients/norm": _observed(
        "gradient norm", _BY_WEIGHT, "norm of the gradient by layer", _XIONG
    ),
    "gradients/kind": _observed(
        "gradient norm by kind", _BY_WEIGHT, "norm of the gradient by kind of parameter"
    ),
    "gradients/spread": _observed(
        "largest over smallest gradient", "ratio", "largest over smallest norm of a layer"
    ),
    "independence/icc": _observed(
        "correlation within a sample",
        _VARIANCE,
        "intraclass correlation: variance that tokens of a sample share; 0 if independent",
    ),
    "independence/effect": _observed(
        "inflation of the mean's variance",
        "ratio",
        "variance of a mean of tokens, relative to a mean of independent tokens",
    ),
    "independence/distance": _observed(
        "squared distance from the running mean",
        "ratio",
        "squared distance of batch mean and running mean; 1 if independent",
    ),
    "independence/gradient": _observed(
        "inflation of the gradient",
        "ratio",
        "squared sum of the tokens' gradients over the sum of their squares",
    ),
    "independence/position": _observed(
        "correlation at a position",
        _VARIANCE,
        "variance that tokens at one position share; 0 if identically distributed",
    ),
    "independence/shuffled": _observed(
        "correlation within shuffled samples",
        _VARIANCE,
        "independence/icc of the same tokens, shuffled",
    ),
    "length_change/loss_before": _observed(
        "loss before the change", NATS, "mean loss before the change of length", per="token"
    ),
    "length_change/loss_jump": _observed(
        "jump of the loss", NATS, "rise of the loss at the change of length", per="token"
    ),
    "length_change/recovery": _observed(
        "updates to recover",
        "updates",
        "updates until the loss is back at its value before the change",
    ),
    "length_change/tid_before": _observed(
        "TID before the change", _DISTANCE, "tid/mean before the change of length", _WANG
    ),
    "length_change/tid_after": _observed(
        "TID after the change", _DISTANCE, "tid/mean after the change of length", _WANG
    ),
    "padding/share": _observed("padding", "share of positions", "share of padding in a batch"),
    "padding/max": _observed(
        "largest share of padding", "share of positions", "largest padding/share of the run"
    ),
    "padding/tokens": _observed(
        "tokens in one statistic", "tokens", "number of tokens that a batch statistic pools"
    ),
    "rank/participation": _observed(
        "participation ratio", "features", "participation ratio of the stream's covariance"
    ),
    "rank/effective": _observed(
        "effective rank", "features", "effective rank of the stream", "Roy and Vetterli 2007"
    ),
    "residual/rms": _observed(
        "size of the residual stream", _ACTIVATION, "root mean square of the stream", _XIONG
    ),
    "residual/growth": _observed(
        "growth of the residual stream",
        "ratio",
        "root mean square at the end of a stack over that at its start",
        _XIONG,
    ),
    "saturation/share": _observed(
        "saturated outputs",
        "share of values",
        "outputs near the bound of a bounded norm's function",
    ),
    "spikes/count": _observed("loss spikes", "spikes", "sudden rises of the training loss"),
    "spikes/size": _observed(
        "largest loss spike", NATS, "largest rise of the loss in a spike", per="token"
    ),
    "spikes/recovery": _observed(
        "updates to recover from a spike",
        "updates",
        "updates until the loss is back at its value before the spike",
    ),
    "statistics_gradient/mean": _observed(
        "gradient of the mean", _BY_ACTIVATION, "gradient through the batch's mean", _SHEN
    ),
    "statistics_gradient/var": _observed(
        "gradient of the variance", _BY_VARIANCE, "gradient through the batch's variance", _SHEN
    ),
    "tid/mean": _observed("distance from the running mean", _DISTANCE, "TID of the means", _WANG),
    "tid/var": _observed(
        "distance from the running deviation",
        _DISTANCE,
        "TID of the deviations",
        _WANG,
    ),
    "updates/ratio": _observed(
        "update size", "share of the weights", "norm of an update over the norm of the weights"
    ),
    # These occur in published records, but are no longer measured.
    "grad_norm/noise": _observed(
        "noise of the gradient norm",
        "ratio",
        "standard deviation of the gradient's norm over its mean, within windows",
    ),
    "grad_norm/nonfinite": _observed(
        "steps with an infinite gradient", "steps", "steps with an infinite or NaN gradient"
    ),
    "tid/code_mean": _observed(
        "TID of the mean in code", _DISTANCE, "tid/mean as the released code logs it", _WANG
    ),
    "tid/code_var": _observed(
        "TID of the variance in code", _DISTANCE, "tid/var as the released code logs it", _WANG
    ),
}
"""The metrics of probes, logged as `stability/PROBE/NAME`, for the whole model or per site."""


def metric_key(name: str) -> str:
    """Return the key of the metric at a path, such as `bleu` for `test/bleu`."""
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
    """Return whether a metric has a better direction. A user's own metric always has one."""
    known = metric(name)
    return known is None or known.better != "-"


def new_score(name: str, value: float, n: int, signature: str | None = None) -> Score:
    """Return a score, given its name or path and its value over `n` items.

    The glossary says whether a higher value is better. Raises KeyError for a name that is not in
    it. A `length_ratio` is recorded as if higher were better, like the brevity penalty that is
    computed from it, although 1 is best.
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
