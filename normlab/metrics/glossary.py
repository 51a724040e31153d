"""What each metric of a record means: unit, better direction, source. The reference is built on it.

Scores are looked up by the last part of their path, `bleu` for `test_2017/best_loss/bleu`; probe
metrics by probe and metric, `tid/mean` for `stability/tid/mean/encoder.0.self`.
"""

from typing import NamedTuple


class Meaning(NamedTuple):
    """What a metric is: the better direction ("-" if neither), unit, description and source."""

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
_LESS = {
    "loss": ("nats per token or image", "the training loss, label smoothing included"),
    "nll": ("nats per token", "negative log-likelihood, without label smoothing"),
    "perplexity": ("-", "exp of the negative log-likelihood per token"),
    "mlm_loss": ("nats per masked token", "of masked tokens", _DEVLIN),
    "nsp_loss": ("nats per pair", "of next-sentence pairs", _DEVLIN),
    "calibration_error": ("share", "confidence against accuracy, over 15 bins", "Guo et al. 2017"),
    "bits_per_character": ("bits", "negative log-likelihood per character"),
    "teacher_forced_loss": ("nats per token", "the windows of one_by_one/loss, each as a whole"),
    "steps_to": ("updates", "to a value that is then kept; infinite if never"),
    "tokens_to": ("tokens", "to a value that is then kept; infinite if never"),
    "steps_to_converge": ("updates", "first validation within 1 % of the last loss, if settled"),
    "tokens_to_converge": ("tokens", "the same, in tokens"),
}
_MORE = {
    "bleu": (
        "0 to 100",
        "corpus BLEU on detokenised, cased text, by sacreBLEU",
        "Papineni et al. 2002; Post 2018",
    ),
    "bleu_tok": (
        "0 to 100",
        "corpus BLEU on lowercased Moses tokens, as in IWSLT'14 papers",
        _PAPINENI,
    ),
    "chrf": ("0 to 100", "chrF2 on detokenised text, by sacreBLEU", "Popovic 2015"),
    "brevity_penalty": ("0 to 1", "BLEU's factor for what is too short", _PAPINENI),
    "mlm_accuracy": ("share", "masked tokens predicted right", _DEVLIN),
    "mlm_accuracy_top5": ("share", "masked tokens among the five best guesses"),
    "nsp_accuracy": ("share", "pairs classified right", _DEVLIN),
    "accuracy": ("share", "images classified right"),
}
_PROBES = {
    "activations/mean": ("of the values", "mean of a norm's input"),
    "activations/var": ("of the values, squared", "variance of a norm's input"),
    "activations/largest": ("of the values", "largest magnitude of a norm's input"),
    "activations/outliers": (
        "share of features",
        "features that stand out",
        "after Dettmers et al. 2022",
    ),
    "attention/entropy": ("share of log n", "1 is uniform, 0 one key"),
    "attention/largest": ("logit", "largest magnitude of a logit"),
    "attention/saturated": ("share of rows", "rows with one weight near 1"),
    "attention/slope": ("0 to 1", "what the softmax lets through"),
    "branches/rms": ("of the values", "root mean square of sub-layers' outputs"),
    "branches/crest": ("ratio", "largest value of those over their root mean square"),
    "drift/mean": ("ratio", "squared move of features' means, over their variance", _SHIFT),
    "drift/deviation": ("ratio", "the same of their deviations", _SHIFT),
    "fluctuation/mean": ("of the values", "batch mean against the running one", _SHEN),
    "fluctuation/var": ("of the values, squared", "batch variance against the running one", _SHEN),
    "fluctuation/ratio": ("ratio", "variance between batches over that within"),
    "fluctuation/excess": ("ratio", "the ratio times the tokens; 1 if independent"),
    "grad_norm/mean": ("nats per token and weight", "its norm before clipping"),
    "grad_norm/max": ("nats per token and weight", "its largest value"),
    "grad_norm/noise": ("ratio", "its deviation over its mean, within windows"),
    "grad_norm/nonfinite": ("steps", "steps whose gradient was not finite"),
    "gradients/norm": ("nats per token and weight", "by layer", _XIONG),
    "gradients/kind": ("nats per token and weight", "by kind of parameter"),
    "gradients/spread": ("ratio", "largest over smallest norm of a layer"),
    "independence/icc": ("share of the variance", "shared by tokens of a sample; 0 if independent"),
    "independence/effect": ("ratio", "variance of a mean over that of independent tokens"),
    "independence/distance": ("ratio", "squared, of batch and running mean; 1: independent"),
    "independence/gradient": ("ratio", "squared sum of gradients over sum of squares"),
    "independence/shuffled": ("share of the variance", "the icc of the same tokens, shuffled"),
    "length_change/loss_before": ("nats per token", "mean loss before the change"),
    "length_change/loss_jump": ("nats per token", "rise of the loss at the change"),
    "length_change/recovery": ("updates", "until the loss is as before"),
    "length_change/tid_before": ("ratio", "tid/mean before the change", _WANG),
    "length_change/tid_after": ("ratio", "tid/mean after the change", _WANG),
    "padding/share": ("share of positions", "padding of a batch"),
    "padding/max": ("share of positions", "the largest share of the run"),
    "padding/tokens": ("tokens", "in one statistic of the batch"),
    "residual/rms": ("of the values", "root mean square of the stream", _XIONG),
    "residual/growth": ("ratio", "the last over the first of a stack", _XIONG),
    "spikes/count": ("spikes", "sudden rises of the training loss"),
    "spikes/size": ("nats per token", "of the largest"),
    "spikes/recovery": ("updates", "until the loss is back"),
    "statistics_gradient/mean": (
        "nats per token and mean",
        "gradient through the batch's mean",
        _SHEN,
    ),
    "statistics_gradient/var": ("nats per token", "gradient through the batch's variance", _SHEN),
    "tid/mean": ("ratio", "batch mean against the running one", _WANG),
    "tid/var": ("ratio", "the same of deviations", _WANG),
    "tid/code_mean": ("ratio", "the form that the released code logs", _WANG),
    "tid/code_var": ("ratio", "the same of deviations", _WANG),
    "updates/ratio": ("ratio", "size of an update over that of the weights"),
}
SCORES = {
    **{name: Meaning("less", *each) for name, each in _LESS.items()},
    **{name: Meaning("more", *each) for name, each in _MORE.items()},
    "length_ratio": Meaning("-", "ratio", "tokens over those of the references; 1 is best"),
}
PROBES = {name: Meaning("-", *each) for name, each in _PROBES.items()}


def meaning(name: str) -> Meaning | None:
    """Return the meaning of a record's metric, or None if the metric is unknown."""
    parts = name.split("/")
    if parts[0] == "stability":
        return PROBES.get("/".join(parts[1:3]))
    counted = next((part for part in ("steps_to", "tokens_to") if part in parts), None)
    return SCORES.get(counted or parts[-1])
