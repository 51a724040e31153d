"""The places of norms that have a config key, and rules that reach any place by its path.

`norm` is the norm of all places, `norm@encoder_norm=bn` the norm of the encoder's places: each key
is a rule on paths (`SITES`). `sites={encoder.0.*:ln,*.ffn:bn}` adds rules; the last rule that
matches a place decides. Paths are `encoder.0.self`, `decoder.1.cross`, `encoder.0.ffn`,
`decoder.final`. Some places have no norm unless the last word of a rule names them:
`encoder.embedding`, `encoder.0.ffn.inner` before the activation, `.hidden` after it, and in an
attention (`encoder.0.self.q`) `q`, `k`, `v`, `mix` before the output projection and `out` after it.
A recurrent layer has `recurrent.0.input`, `hidden` and `cell`. `*` matches anything, dots
included.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple


class SiteKey(NamedTuple):
    """A config key that sets the norm of some places.

    Attributes:
        key: the key in the config; `norm@<key>` on the command line.
        rule: the pattern of paths that the key is short for.
        default: the norm if the key is not given: the run's own (`norm`), or `none`.
        width: the size in the model's config that is the width of the norm.
    """

    key: str
    rule: str
    default: Literal["norm", "none"] = "norm"
    width: str = "dim"


SITES = (
    SiteKey("norm", "*"),
    SiteKey("encoder_norm", "encoder.*"),
    SiteKey("decoder_norm", "decoder.*"),
    SiteKey("ffn_inner_norm", "*.inner", default="none", width="ffn_dim"),
    SiteKey("embedding_norm", "*.embedding", default="none"),
    SiteKey("input_norm", "recurrent.*.input"),
    SiteKey("hidden_norm", "recurrent.*.hidden"),
    SiteKey("cell_norm", "recurrent.*.cell"),
)
"""All keys that name a norm, in the order of the config."""
NORM_KEYS = tuple(site.key for site in SITES)
STACK_NORMS = ("encoder_norm", "decoder_norm")
STEP_NORMS = ("input_norm", "hidden_norm", "cell_norm")
"""The keys of a recurrent layer's norms."""
_LABELED = 4  # rules in a label


def label(names: Mapping[str, str]) -> str:
    """Return a label of the rules in `sites`, with each pattern's norm, for the run's name."""
    words = {pattern: [part for part in pattern.split(".") if part != "*"] for pattern in names}
    said = [f"{'.'.join(words[pattern])}_{name}" for pattern, name in names.items()]
    rest = [f"{len(said) - _LABELED}_more"] if len(said) > _LABELED else []
    return "+".join(said[:_LABELED] + rest)


def misplaced(choices: Mapping[str, Any], qk_norm: str | None) -> Iterator[str]:
    """Yield messages about norms that do not go together with the placement.

    `choices` are the run's options by group or norm key; `qk_norm` is the model's, if it has one.
    """
    placement, run = choices.get("placement"), choices.get("norm")
    norms = {site: choices.get(site) or run for site in ("norm", *STACK_NORMS)}
    for site, norm in norms.items() if placement == "rezero" else ():
        if norm not in (None, "none"):
            key = site if site == "norm" else f"norm@{site}"
            yield (
                f"placement=rezero has no norms, and {key}={norm} asks for one: give {key}=none; "
                "for a small gain next to norms give placement=layerscale"
            )
    if placement in ("deepnorm", "admin", "b2t") and "none" in norms.values():
        yield (  # the residual stream grows if no norm follows the sum
            f"placement={placement} makes the stream larger in each layer, and with norm=none "
            "nothing brings it back: give norm=ln, or placement=pre, post or rezero"
        )
    embedding = choices.get("embedding_norm")
    if placement == "peri" and embedding not in (None, "none"):
        yield (
            f"placement=peri has its own norm on the embedded tokens: norm@embedding_norm="
            f"{embedding} is a second: leave it out, or give placement=sandwich"
        )
    if placement == "hybrid" and qk_norm not in (None, "none"):
        yield (
            "placement=hybrid has its own norms on queries and keys: give model.qk_norm=none "
            f"instead of {qk_norm}, or placement=pre"
        )
