"""Probes of norm inputs, sub-layer outputs, the residual stream, drift and attention.

Only real tokens are measured. If a recurrent layer calls a norm with one position at a time, the
inputs at all positions are measured together.
"""

import math
from collections.abc import Mapping
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from normlab.models.attention import visible_keys
from normlab.models.layers import soft_cap
from normlab.probes.base import Probe, Values, all_by_site
from normlab.probes.sites import ModuleCall, sites

SINK, SINK_QUERIES, SINK_KEYS = 0.3, 64, 16  # smallest mean weight, most queries, fewest keys
MASSIVE, TIMES = 100.0, 1000.0  # smallest magnitude, and its smallest ratio to the median


def describe(
    x: Float[Tensor, "B P D"], valid: Bool[Tensor, "B P"], *, threshold: float
) -> dict[str, Tensor]:
    """Return the metrics of a norm's input at real tokens, as `Activations` defines them.

    In addition, `feature` and `position` are the indices of the largest magnitude.
    """
    with torch.autocast(x.device.type, enabled=False):
        tokens = valid.unsqueeze(-1)
        wide = x.to(torch.promote_types(x.dtype, torch.float32)) * tokens
        count = tokens.sum().clamp(min=1)
        mean = wide.mean(-1).sum() / count
        centered = (wide - mean) * tokens  # a difference of squares would lose a small variance
        by_feature = wide.square().sum((0, 1)) / count
        square = by_feature.mean()
        sizes = wide.abs()
        median = sizes.masked_fill(~tokens, math.nan).nanmedian()
        place = sizes.flatten().argmax()
        var = centered.square().mean(-1).sum() / count
        z = centered * var.clamp(min=torch.finfo(var.dtype).tiny).rsqrt()
        return {
            "mean": mean,
            "var": var,
            "kurtosis": z.square().square().mean(-1).sum() / count - 3,
            "largest": sizes.amax(),
            "over_median": sizes.amax() / median,
            "feature": place % x.shape[2],
            "position": place // x.shape[2] % x.shape[1],
            "outliers": (by_feature > threshold**2 * square).to(wide.dtype).mean(),
        }


class Activations(Probe):
    """Measures the input of each norm.

        mean, var    mean and variance of all values
        largest      max |x|
        over_median  max |x| / median |x|. Sun et al. 2024 call activations massive if they exceed
                     100 and are about 1000 times the median; small models rarely reach 100
        kurtosis     the excess kurtosis, E[(x - mean)^4] / var^2 - 3: 0 for a normal distribution,
                     above 1000 with massive activations (Park et al. 2025, arXiv 2506.19697)
        outliers     share of features whose root mean square over tokens is more than `threshold`
                     times the root mean square of all values

    The definition of `outliers` is ours, after Dettmers et al. 2022; it does not depend on the
    scale of the activations. At width D, the ratio is at most sqrt(D).
    """

    kinds = ("norm",)
    largest = ("largest", "over_median")

    def __init__(self, *, every: int, threshold: float) -> None:
        super().__init__(every=every)
        self._threshold = threshold

    def measure_call(self, call: ModuleCall) -> Values:
        return describe(*call.input, threshold=self._threshold)

    def metrics_of(self, by_site: Mapping[str, Values]) -> Values:
        indices = ("feature", "position")  # an average over sites or steps would be meaningless
        sized = {k: {n: x for n, x in of.items() if n not in indices} for k, of in by_site.items()}
        return super().metrics_of(sized)


def root_mean_square(x: Float[Tensor, "B P D"], valid: Bool[Tensor, "B P"]) -> Float[Tensor, ""]:
    """Return the root mean square of the values at real tokens."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    by_token = wide.square().mean(-1) * valid
    return (by_token.sum() / valid.sum().clamp(min=1)).sqrt()


def describe_branch(x: Float[Tensor, "B P D"], valid: Bool[Tensor, "B P"]) -> dict[str, Tensor]:
    """Return `rms` and `crest` of the values at real tokens, as `Branches` defines them."""
    rms = root_mean_square(x, valid)
    largest = (x.abs() * valid.unsqueeze(-1)).amax().to(rms.dtype)
    return {"rms": rms, "crest": largest / rms}


class Branches(Probe):
    """Measures the output x of each sub-layer, before any norm, scale, dropout or residual.

        rms    sqrt(mean(x^2))
        crest  max |x| / rms, the crest factor: 1 if all magnitudes are equal

    `crest/attention`, `crest/feed_forward`, `crest/convolution` and `crest/recurrent` are means
    over the sub-layers of each kind.
    """

    kinds = ("sublayer",)

    def measure_call(self, call: ModuleCall) -> Values:
        return describe_branch(*call.output)

    def metrics_of(self, by_site: Mapping[str, Values]) -> Values:
        by_kind: dict[str, list[Tensor]] = {}
        for site, values in by_site.items():
            by_kind.setdefault(f"crest/{self.sites[site].kind}", []).append(values["crest"])
        means = {name: torch.stack(values).mean() for name, values in by_kind.items()}
        return {**all_by_site(by_site), **means}


def first_stream(call: ModuleCall) -> tuple[Float[Tensor, "B P D"], Bool[Tensor, "B P"]]:
    """Return the first residual stream after a connection, and the mask of the real tokens."""
    x, real = call.output
    return x.chunk(cast("int", call.module.streams), dim=-1)[0], real


class ResidualStream(Probe):
    """Measures the size of the residual stream by depth, after each residual connection.

    `rms/<site>` is the root mean square. `growth` is the last `rms` of a stack divided by the
    first, averaged over stacks. (The name of a site starts with its stack.) At initialization, the
    stream grows like the square root of depth with Pre-LN, and `growth` is 1 with Post-LN (Xiong et
    al. 2020).
    """

    kinds = ("residual",)

    def measure_call(self, call: ModuleCall) -> Values:
        return {"rms": root_mean_square(*first_stream(call))}

    def metrics_of(self, by_site: Mapping[str, Values]) -> Values:
        stacks: dict[str, list[Tensor]] = {}
        for site, values in by_site.items():
            stacks.setdefault(site.split(".")[0], []).append(values["rms"])
        if not stacks:
            return {}
        growth = torch.stack([sizes[-1] / sizes[0] for sizes in stacks.values()]).mean()
        return {"growth": growth, **{f"rms/{site}": of["rms"] for site, of in by_site.items()}}


def moments(x: Float[Tensor, "B P D"], valid: Bool[Tensor, "B P"]) -> Float[Tensor, "2 D"]:
    """Return the mean and the standard deviation of each feature over the real tokens."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    tokens = valid.unsqueeze(-1).to(wide.dtype)
    count = tokens.sum().clamp(min=1)
    mean = (wide * tokens).sum((0, 1)) / count
    square = ((wide - mean).square() * tokens).sum((0, 1)) / count
    return torch.stack([mean, square.sqrt()]).double()


def drift(before: Float[Tensor, "2 D"], now: Float[Tensor, "2 D"]) -> dict[str, Tensor]:
    """Return `mean` and `deviation`, as `Drift` defines them, between two measurements."""
    scale = now[1].square().sum()
    mean, deviation = (now - before.to(now)).square().sum(1) / scale
    return {"mean": mean, "deviation": deviation}


class Drift(Probe):
    """Measures how much the inputs of sub-layers have changed since the previous measurement.

        mean       sum (m' - m)^2 / sum s'^2
        deviation  sum (s' - s)^2 / sum s'^2

    with sums over features, where m and s are the previous means and standard deviations, and m'
    and s' the current ones. Both metrics are ours; they do not depend on the scale of the
    activations. Ioffe and Szegedy 2015 call such a change, caused by training earlier layers,
    internal covariate shift. In recurrent layers, the inputs of norms are measured.

    The measurements are also of different batches. With n independent tokens, `mean` is about 2 / n
    even without drift, so leave several updates between measurements.
    """

    kinds = ("sublayer", "recurrent norm")
    remembered = ("_before",)

    def __init__(self, *, every: int) -> None:
        super().__init__(every=every)
        self._before: dict[str, Float[Tensor, "2 D"]] = {}

    def measure_call(self, call: ModuleCall) -> Values:
        return {"moments": moments(*call.input)}

    def metrics_of(self, by_site: Mapping[str, Values]) -> Values:
        before, self._before = self._before, {site: of["moments"] for site, of in by_site.items()}
        now = self._before
        return all_by_site({site: drift(before[site], now[site]) for site in now if site in before})


@torch.no_grad()
def describe_attention(
    query: Float[Tensor, "B H P K"],
    key: Float[Tensor, "B H S K"],
    visible: Bool[Tensor, "..."] | None,
    valid: Bool[Tensor, "B P"],
    *,
    threshold: float,
    cap: float | None = None,
) -> dict[str, Tensor]:
    """Return the metrics of `AttentionWeights` over the rows of real queries.

    `valid` is the mask of real queries, and `cap` is the attention's `score_cap`.
    """
    with torch.autocast(query.device.type, enabled=False):
        wide = torch.promote_types(query.dtype, torch.float32)
        logits = query.to(wide) @ key.to(wide).transpose(-1, -2) / math.sqrt(query.shape[-1])
        logits = soft_cap(logits, cap)
        shown = torch.ones((), dtype=torch.bool, device=logits.device)
        shown = (shown if visible is None else visible).expand(logits.shape)
        rows = valid[:, None, :].expand(logits.shape[:-1])
        hidden = ~(shown & rows.unsqueeze(-1))
        weights = logits.masked_fill(~shown, -torch.inf).softmax(-1)
        keys = shown.sum(-1)
        counted = rows & (keys > 1)
        total = counted.sum().clamp(min=1)
        spread = -torch.xlogy(weights, weights).sum(-1) / keys.clamp(min=2).log()
        return {
            "entropy": (spread * counted).sum() / total,
            "largest": logits.masked_fill(hidden, 0).abs().amax(),
            "saturated": ((weights.amax(-1) > threshold) & counted).sum() / total,
            "slope": ((1 - weights.square().sum(-1)) * counted).sum() / total,
            **_sinks(weights, rows, keys, causal=visible is not None and visible.shape[-2] > 1),
        }


def _sinks(
    weights: Float[Tensor, "B H P S"],
    rows: Bool[Tensor, "B H P"],
    keys: Int[Tensor, "B H P"],
    *,
    causal: bool,
) -> dict[str, Tensor]:
    """Return `sink` or `sink_unmasked`, or nothing if all sequences have too few keys."""
    if weights.shape[-1] < SINK_KEYS:
        return {}
    enough = (keys * rows).amax(-1) >= SINK_KEYS
    last = SINK_QUERIES if causal else None  # enough, because padding comes last
    first, rows = weights[..., :last, 0], rows[..., :last]
    mean = (first * rows).sum(-1) / rows.sum(-1).clamp(min=1)
    share = ((mean > SINK) & enough).sum() / enough.sum()
    return {"sink" if causal else "sink_unmasked": share}


class AttentionWeights(Probe):
    """Measures the logits and weights of each attention layer, without dropout.

    A row has the weights p of one real query and head over n visible keys. Over all rows:

        entropy    mean of -sum p log p / log n: 1 for uniform weights, 0 for a single key
        largest    largest magnitude of a logit, q k / sqrt(K)
        saturated  share of rows whose largest weight is above `threshold`
        slope      mean of 1 - sum p^2, the trace of the softmax's Jacobian diag(p) - p p': how
                   strongly the weights respond to the logits; 0 if the softmax is saturated
        sink       share of (sequence, head) pairs whose weight on the first key, averaged over the
                   first T = min(64, n) of n queries, is above 0.3 (Gu et al. 2025, with T = 64)

    Rows with a single visible key are left out of entropy, saturated and slope. Uniform causal
    attention puts (1 + 1/2 + ... + 1/T) / T on the first key, which is 0.07 at T = 64, but 0.31 at
    T = 9, so `sink` needs sequences of at least 16 keys. Attention without a causal mask averages
    over all queries, and its metric is called `sink_unmasked`.
    """

    kinds = ("attention",)
    largest = ("largest",)

    def __init__(self, *, every: int, threshold: float) -> None:
        super().__init__(every=every)
        self._threshold = threshold
        self._queries: Bool[Tensor, "B P"] | None = None

    def attach(self, model: nn.Module) -> None:
        super().attach(model)
        for name, (_, residual) in sites(model, ("residual",)).items():
            if name in self.sites:  # only the residual connection knows which queries are real
                self._hooks.append(residual.register_forward_pre_hook(self._enter))

    def _enter(self, _: nn.Module, args: tuple[Any, ...]) -> None:
        if self.watching:
            self._queries = args[1].real(args[0])

    def measure_call(self, call: ModuleCall) -> Values:
        if self._queries is None:
            return {}
        query, key, _, *mask = call.args
        visible = visible_keys(query, *mask)
        cap, at = cast("float | None", call.module.cap), self._threshold
        return describe_attention(query, key, visible, self._queries, threshold=at, cap=cap)
