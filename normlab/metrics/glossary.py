"""What the figures of a record mean: unit, better direction, source. The reference is made of it.

Scores are known by the last part of their path, `bleu` of `test_2017/best_loss/bleu`; figures of
probes by probe and figure, `tid/mean` of `stability/tid/mean/encoder.0.self`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Meaning:
    """What a figure is: its unit, which direction is better ("-": neither), and a source."""

    unit: str
    better: str
    what: str
    source: str = ""


SCORES = {
    "loss": Meaning(
        "nats a token, or a picture", "less", "what training minimizes, label smoothing included"
    ),
    "nll": Meaning("nats a token", "less", "negative log-likelihood, without smoothing of labels"),
    "perplexity": Meaning("-", "less", "exp of the negative log-likelihood a token"),
    "bleu": Meaning(
        "0 to 100",
        "more",
        "corpus BLEU on detokenised, cased text, by sacreBLEU",
        "Papineni et al. 2002; Post 2018",
    ),
    "bleu_tok": Meaning(
        "0 to 100",
        "more",
        "corpus BLEU on lowercased Moses tokens, the number of the IWSLT'14 papers",
        "Papineni et al. 2002",
    ),
    "chrf": Meaning("0 to 100", "more", "chrF2 on detokenised text, by sacreBLEU", "Popovic 2015"),
    "brevity_penalty": Meaning(
        "0 to 1", "more", "BLEU's factor for what is too short", "Papineni et al. 2002"
    ),
    "length_ratio": Meaning("ratio", "-", "tokens over those of the references; 1 is best"),
    "mlm_loss": Meaning("nats a masked token", "less", "of masked tokens", "Devlin et al. 2019"),
    "mlm_accuracy": Meaning("share", "more", "masked tokens guessed right", "Devlin et al. 2019"),
    "mlm_accuracy_top5": Meaning("share", "more", "masked tokens among the five best guesses"),
    "nsp_loss": Meaning("nats a pair", "less", "of next-sentence pairs", "Devlin et al. 2019"),
    "nsp_accuracy": Meaning("share", "more", "pairs told right", "Devlin et al. 2019"),
    "accuracy": Meaning("share", "more", "pictures named right"),
    "calibration_error": Meaning(
        "share", "less", "distance of confidence and accuracy, over 15 bins", "Guo et al. 2017"
    ),
    "bits_per_character": Meaning("bits", "less", "negative log-likelihood a character"),
    "teacher_forced_loss": Meaning(
        "nats a token", "less", "whole windows of those that one_by_one/loss feeds token by token"
    ),
    "steps_to": Meaning("updates", "less", "to a value that is then kept; infinite if never"),
    "tokens_to": Meaning("tokens", "less", "to a value that is then kept; infinite if never"),
    "steps_to_converge": Meaning(
        "updates", "less", "first validation within 1 % of the last loss, if it has settled"
    ),
    "tokens_to_converge": Meaning("tokens", "less", "the same, in tokens"),
}
CONDITIONS = {
    "valid/, test/, test_2017/": "the split",
    "best_loss/, best_bleu/": "of the weights that were best by that validation score",
    "batch_size_8/": "tested at that batch size",
    "eval_stats_batch/": "tested with these statistics of norms that pool the batch",
    "noise_0.4/": "tested with Gaussian noise on the input, of that many of its deviations",
    "seen/": "of training examples, in evaluation mode",
    "length_33_64/": "examples of these lengths alone, in tokens",
    "one_by_one/": "one token at a time",
    "steps_to/mlm_accuracy_0.2": "which score, and which value of it",
}
_XIONG = "Xiong et al. 2020"
_WANG = "Wang, Wu and Huang 2022"
_SHEN = "Shen et al. 2020"
_SHIFT = "after Ioffe and Szegedy 2015"
PROBES = {
    "activations/mean": Meaning("of the values", "-", "mean of a norm's input"),
    "activations/var": Meaning("of the values, squared", "-", "variance of a norm's input"),
    "activations/largest": Meaning("of the values", "-", "largest magnitude of a norm's input"),
    "activations/outliers": Meaning(
        "share of features", "-", "features that stand out", "after Dettmers et al. 2022"
    ),
    "attention/entropy": Meaning("share of log n", "-", "1 is uniform, 0 one key"),
    "attention/largest": Meaning("logit", "-", "largest magnitude of a logit"),
    "attention/saturated": Meaning("share of rows", "-", "rows with one weight near 1"),
    "attention/slope": Meaning("0 to 1", "-", "what the softmax lets through"),
    "branches/rms": Meaning("of the values", "-", "root mean square of sub-layers' outputs"),
    "branches/crest": Meaning("ratio", "-", "largest value of those over their root mean square"),
    "drift/mean": Meaning(
        "ratio", "-", "squared move of features' means between looks, over their variance", _SHIFT
    ),
    "drift/deviation": Meaning("ratio", "-", "the same of their deviations", _SHIFT),
    "fluctuation/mean": Meaning("of the values", "-", "batch mean against the running one", _SHEN),
    "fluctuation/var": Meaning(
        "of the values, squared", "-", "batch variance against the running one", _SHEN
    ),
    "fluctuation/ratio": Meaning("ratio", "-", "variance between batches over that within"),
    "fluctuation/excess": Meaning("ratio", "-", "the ratio times the tokens; 1 if independent"),
    "grad_norm/mean": Meaning("nats a token a unit of weight", "-", "its norm before clipping"),
    "grad_norm/max": Meaning("nats a token a unit of weight", "-", "its largest value"),
    "grad_norm/noise": Meaning("ratio", "-", "its deviation over its mean, within windows"),
    "grad_norm/nonfinite": Meaning("steps", "-", "steps whose gradient was not finite"),
    "gradients/norm": Meaning("nats a token a unit of weight", "-", "by layer", _XIONG),
    "gradients/kind": Meaning("nats a token a unit of weight", "-", "by kind of parameter"),
    "gradients/spread": Meaning("ratio", "-", "largest over smallest norm of a layer"),
    "independence/icc": Meaning(
        "share of the variance", "-", "that tokens of a sample have in common; 0 if independent"
    ),
    "independence/effect": Meaning(
        "ratio", "-", "variance of a mean over that of independent tokens; 1 if independent"
    ),
    "independence/distance": Meaning(
        "ratio", "-", "squared, of batch and running mean; 1 if tokens are independent"
    ),
    "independence/gradient": Meaning(
        "ratio", "-", "squared sum of gradients over sum of squares; 1 if independent"
    ),
    "independence/shuffled": Meaning(
        "share of the variance", "-", "the control: icc of the same tokens, dealt out at random"
    ),
    "length_change/loss_before": Meaning("nats a token", "-", "mean loss before the change"),
    "length_change/loss_jump": Meaning("nats a token", "-", "rise of the loss at the change"),
    "length_change/recovery": Meaning("updates", "-", "until the loss is as before"),
    "length_change/tid_before": Meaning("ratio", "-", "tid/mean before the change", _WANG),
    "length_change/tid_after": Meaning("ratio", "-", "tid/mean after the change", _WANG),
    "padding/share": Meaning("share of positions", "-", "padding of a batch"),
    "padding/max": Meaning("share of positions", "-", "the largest share of the run"),
    "padding/tokens": Meaning("tokens", "-", "that one statistic of the batch is made of"),
    "residual/rms": Meaning("of the values", "-", "root mean square of the stream", _XIONG),
    "residual/growth": Meaning("ratio", "-", "the last over the first of a stack", _XIONG),
    "spikes/count": Meaning("spikes", "-", "sudden rises of the training loss"),
    "spikes/size": Meaning("nats a token", "-", "of the largest"),
    "spikes/recovery": Meaning("updates", "-", "until the loss is back"),
    "statistics_gradient/mean": Meaning(
        "nats a token a unit of mean", "-", "gradient through the batch's mean", _SHEN
    ),
    "statistics_gradient/var": Meaning(
        "nats a token a unit of variance", "-", "gradient through the batch's variance", _SHEN
    ),
    "tid/mean": Meaning("ratio", "-", "batch mean against the running one, as in the paper", _WANG),
    "tid/var": Meaning("ratio", "-", "the same of deviations", _WANG),
    "tid/code_mean": Meaning("ratio", "-", "the form that the released code logs", _WANG),
    "tid/code_var": Meaning("ratio", "-", "the same of deviations", _WANG),
    "updates/ratio": Meaning("ratio", "-", "size of an update over that of the weights"),
}


def meaning(name: str) -> Meaning | None:
    """Return what a figure of a record means, None for one that is not known."""
    parts = name.split("/")
    if parts[0] == "stability":
        return PROBES.get("/".join(parts[1:3]))
    counted = next((part for part in ("steps_to", "tokens_to") if part in parts), None)
    return SCORES.get(counted or parts[-1])
