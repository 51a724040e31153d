"""The meaning of each metric in a record: better direction, unit, description and source.

The key of a score is the last part of its path, such as `bleu` for `test_2017/best_loss/bleu`; the
key of a probe metric is probe and name: `tid/mean` for `stability/tid/mean/encoder.0.self`.
"""

from typing import NamedTuple

from normlab.records.record import is_probe_metric


class Meaning(NamedTuple):
    """A metric's better direction ("-" if neither), unit, description and source."""

    better: str
    unit: str
    what: str
    source: str = ""


_XIONG = "Xiong et al. 2020"
_WANG = "Wang, Wu and Huang 2022"
_SHEN = "Shen et al. 2020"
_SHIFT = "after Ioffe and Szegedy 2015"
_PAPINENI = "Papineni et al. 2002"
_DEVLIN = "Devlin et al. 2019"
_DETTMERS = "after Dettmers et al. 2022"
_PARK = "Park et al. 2025"
_NLL = "negative log-likelihood"
_PER = "nats per token, per unit of weight"
_LESS = {
    "loss": ("nats per token or example", "the training loss; of text, with label smoothing"),
    "nll": ("nats per token", f"{_NLL}, without label smoothing"),
    "perplexity": ("-", f"exp of the {_NLL} per token"),
    "mlm_loss": ("nats per masked token", f"{_NLL} of masked tokens", _DEVLIN),
    "nsp_loss": ("nats per pair", f"{_NLL} of next-sentence pairs", _DEVLIN),
    "calibration_error": ("share", "confidence against accuracy, over 15 bins", "Guo et al. 2017"),
    "bits_per_character": ("bits", f"{_NLL} per character"),
    "teacher_forced_loss": ("nats per token", "over the windows of one_by_one/loss, each at once"),
    "steps_to": ("updates", "until a value is reached for good; infinite if never"),
    "tokens_to": ("tokens", "until a value is reached for good; infinite if never"),
    "steps_to_converge": ("updates", "first validation within 1 % of the last loss, if settled"),
    "tokens_to_converge": ("tokens", "first validation within 1 % of the last loss, if settled"),
}
_MORE = {
    "bleu": ("0 to 100", "sacreBLEU on detokenized, cased text", f"{_PAPINENI}; Post 2018"),
    "bleu_tok": ("0 to 100", "BLEU on lowercased Moses tokens, as in IWSLT'14 papers", _PAPINENI),
    "chrf": ("0 to 100", "chrF2 on detokenized text, by sacreBLEU", "Popovic 2015"),
    "brevity_penalty": ("0 to 1", "BLEU's factor for translations that are too short", _PAPINENI),
    "mlm_accuracy": ("share", "masked tokens predicted correctly", _DEVLIN),
    "mlm_accuracy_top5": ("share", "masked tokens among the five most likely predictions"),
    "nsp_accuracy": ("share", "pairs classified correctly", _DEVLIN),
    "accuracy": ("share", "examples classified correctly"),
}
_PROBES = {
    "activations/mean": ("of the values", "mean of a norm's input"),
    "activations/var": ("of the values, squared", "variance of a norm's input"),
    "activations/largest": ("of the values", "largest magnitude of a norm's input"),
    "activations/over_median": ("ratio", "largest over median magnitude of a norm's input"),
    "activations/kurtosis": (
        "0 if normal",
        "excess kurtosis of a norm's input",
        _PARK,
    ),
    "activations/outliers": ("share of features", "features with outlying values", _DETTMERS),
    "attention/entropy": ("share of log n", "entropy of a row: 1 is uniform, 0 a single key"),
    "attention/largest": ("logit", "largest magnitude of a logit"),
    "attention/saturated": ("share of rows", "rows with one weight near 1"),
    "attention/slope": ("0 to 1", "how much gradient passes through the softmax"),
    "attention/sink": (
        "share of heads",
        "heads whose mean weight on the first key, over the first 64 queries, is above 0.3",
        "Gu et al. 2025",
    ),
    "attention/sink_unmasked": ("share of heads", "the same without a causal mask, over all keys"),
    "branches/rms": ("of the values", "root mean square of sub-layers' outputs"),
    "branches/crest": ("ratio", "largest output of a sub-layer over the root mean square"),
    "drift/mean": ("ratio", "squared change of features' means, over their variance", _SHIFT),
    "drift/deviation": ("ratio", "squared change of deviations, over the variance", _SHIFT),
    "fluctuation/mean": ("of the values", "batch mean minus running mean", _SHEN),
    "fluctuation/var": ("of the values, squared", "batch variance minus running variance", _SHEN),
    "fluctuation/ratio": ("ratio", "variance between batches over the variance within"),
    "fluctuation/excess": ("ratio", "the ratio times the tokens; 1 if tokens are independent"),
    "grad_norm/mean": (_PER, "norm of the gradient before clipping"),
    "grad_norm/max": (_PER, "largest norm of the gradient"),
    "gradients/norm": (_PER, "norm of the gradient by layer", _XIONG),
    "gradients/kind": (_PER, "norm of the gradient by kind of parameter"),
    "gradients/spread": ("ratio", "largest over smallest norm of a layer"),
    "independence/icc": ("share of the variance", "shared by tokens of a sample; 0 if independent"),
    "independence/effect": ("ratio", "variance of a mean, relative to independent tokens"),
    "independence/distance": ("ratio", "squared, of batch and running mean; 1 if independent"),
    "independence/gradient": ("ratio", "squared sum of gradients over the sum of squares"),
    "independence/position": (
        "share of the variance",
        "shared by tokens at one position of different samples; 0 if identically distributed",
    ),
    "independence/shuffled": ("share of the variance", "the icc of the same tokens, shuffled"),
    "length_change/loss_before": ("nats per token", "mean loss before the change"),
    "length_change/loss_jump": ("nats per token", "rise of the loss at the change"),
    "length_change/recovery": ("updates", "until the loss is back at its earlier value"),
    "length_change/tid_before": ("ratio", "tid/mean before the change", _WANG),
    "length_change/tid_after": ("ratio", "tid/mean after the change", _WANG),
    "padding/share": ("share of positions", "padding of a batch"),
    "padding/max": ("share of positions", "largest padding share of the run"),
    "padding/tokens": ("tokens", "tokens in one statistic of the batch"),
    "rank/participation": ("features", "participation ratio of the stream's covariance"),
    "rank/effective": ("features", "effective rank of the stream", "Roy and Vetterli 2007"),
    "residual/rms": ("of the values", "root mean square of the stream", _XIONG),
    "residual/growth": ("ratio", "the last root mean square over the first of a stack", _XIONG),
    "saturation/share": ("share of values", "outputs near the bound of a bounded norm's function"),
    "spikes/count": ("spikes", "sudden rises of the training loss"),
    "spikes/size": ("nats per token", "rise of the largest spike"),
    "spikes/recovery": ("updates", "until the loss is back at its earlier value"),
    "statistics_gradient/mean": (
        "nats per token, per unit of activation",
        "gradient through the batch's mean",
        _SHEN,
    ),
    "statistics_gradient/var": (
        "nats per token, per squared unit of activation",
        "gradient through the batch's variance",
        _SHEN,
    ),
    "tid/mean": ("ratio", "distance of batch mean and running mean", _WANG),
    "tid/var": ("ratio", "distance of batch deviation and running deviation", _WANG),
    "updates/ratio": ("ratio", "size of an update relative to the weights"),
    # In published records; no longer measured.
    "grad_norm/noise": ("ratio", "deviation of the gradient's norm over its mean, within windows"),
    "grad_norm/nonfinite": ("steps", "steps whose gradient was not finite"),
    "tid/code_mean": ("ratio", "tid/mean as the released code logs it", _WANG),
    "tid/code_var": ("ratio", "tid/var as the released code logs it", _WANG),
}
SCORES = {
    **{name: Meaning("less", *each) for name, each in _LESS.items()},
    **{name: Meaning("more", *each) for name, each in _MORE.items()},
    "length_ratio": Meaning("-", "ratio", "translation tokens over reference tokens; 1 is best"),
}
PROBES = {name: Meaning("-", *each) for name, each in _PROBES.items()}


def meaning(name: str) -> Meaning | None:
    """Return the meaning of a record's metric, or None if the metric is unknown."""
    parts = name.split("/")
    if is_probe_metric(name):
        return PROBES.get("/".join(parts[1:3]))
    counted = next((part for part in ("steps_to", "tokens_to") if part in parts), None)
    return SCORES.get(counted or parts[-1])


def has_direction(name: str) -> bool:
    """Return whether a score has a better direction; True for unknown scores, such as a user's."""
    known = SCORES.get(name.rpartition("/")[2])
    return known is None or known.better != "-"
