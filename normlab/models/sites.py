"""The places of a model where a norm stands or could stand, by their paths, and filling them.

A path is the module's name in the words of `normlab.sites`: `encoder.layers.0.self_residual.norm`
is `encoder.0.self`, the heads' queries of its attention are `encoder.0.self.q`. Any norm that is an
attribute of a module has one, so that models need not list theirs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from torch import nn

from normlab.models.attention import CrossAttention, HeadNorm, SelfAttention
from normlab.models.cells import NormSites
from normlab.models.feed_forward import FeedForward
from normlab.norms.base import Norm
from normlab.norms.local import NoNorm
from normlab.placements.base import NormFactory

_INNER = ("q", "k", "v", "mix", "out")  # of an attention
_EMPTY = (*_INNER, "inner", "embedding")  # unless a rule's last word names them
_WORDS = {"self_residual": "self", "cross_residual": "cross", "ffn_residual": "ffn"}
_WORDS |= {"self_attention": "self", "cross_attention": "cross", "feed_forward": "ffn"}


class OpenPlace(NoNorm):
    """A place that a placement has set, whose norm the rules choose."""


@dataclass(frozen=True)
class Site:
    """One place: its path, the module that has it, the attribute's name, and the width there."""

    path: str
    owner: nn.Module
    name: str
    dim: int

    @property
    def norm(self) -> nn.Module | None:
        """What stands there."""
        return getattr(self.owner, self.name)

    def matches(self, pattern: str) -> bool:
        """Tell whether a rule has this place."""
        last = self.path.rpartition(".")[2]
        if self.norm is None or (last in _EMPTY and not isinstance(self.norm, OpenPlace)):
            return pattern.rpartition(".")[2] == last and fnmatchcase(self.path, pattern)
        closed = type(self.norm) is NoNorm  # where the placement has none, there is none
        return not closed and fnmatchcase(self.path, pattern)

    def fill(self, norm: NormFactory) -> None:
        """Put a norm there."""
        made = norm(self.dim)
        if isinstance(self.owner, NormSites):
            made = self.owner.fitted(self.name, made)
        on_heads = self.name in ("q_norm", "k_norm", "v_norm")
        setattr(self.owner, self.name, HeadNorm(made) if on_heads else made)


def sites(model: nn.Module) -> list[Site]:
    """List the places of a model."""
    found: list[Site] = []
    for name, owner in model.named_modules():
        for attribute, child in owner.named_children():
            if isinstance(child, Norm):
                path = _path(f"{name}.{attribute}".lstrip("."))
                found.append(Site(path, owner, attribute, child.dim))
        if isinstance(owner, SelfAttention | CrossAttention):
            dim = owner.out_proj.out_features
            for part in _INNER:
                if getattr(owner, f"{part}_norm") is None:
                    width = dim // owner.num_heads if part in "qkv" else dim
                    found.append(Site(f"{_path(name)}.{part}", owner, f"{part}_norm", width))
        if isinstance(owner, FeedForward) and owner.hidden_norm is None:
            found.append(Site(f"{_path(name)}.hidden", owner, "hidden_norm", owner.fc2.in_features))
    return found


def fill_sites(
    model: nn.Module, rules: Sequence[tuple[str, NormFactory]], others: Mapping[str, NormFactory]
) -> None:
    """Fill the open places of a model by the last rule that matches, else by the norm of `others`.

    These are by a path's last word where they have it (`cell`), else by its first (`decoder`), and
    what begins with neither stack is the encoder's.

    Raises:
        ValueError: a rule matches no place.
    """
    there = sites(model)
    chosen: dict[int, NormFactory] = {}
    for pattern, norm in rules:
        matched = [number for number, site in enumerate(there) if site.matches(pattern)]
        if not matched:
            raise ValueError(
                f"sites: {pattern} matches no place of this model; there are {_listed(there)}"
            )
        chosen |= dict.fromkeys(matched, norm)
    for number, site in enumerate(there):
        if number in chosen:
            site.fill(chosen[number])
        elif isinstance(site.norm, OpenPlace):
            stack = "decoder" if site.path.startswith("decoder") else "encoder"
            site.fill(others.get(site.path.rpartition(".")[2]) or others[stack])


def _path(name: str) -> str:
    """Return the path of a module's name."""
    parts = [_WORDS.get(part, part.removesuffix("_norm")) for part in name.split(".")]
    if parts[-1] == "norm":
        parts.pop()
    return ".".join(part for part in parts if part != "layers")


def _listed(there: Iterable[Site]) -> str:
    """Name each place once, layers by N."""
    paths = (
        ".".join("N" if part.isdecimal() else part for part in site.path.split("."))
        for site in there
    )
    return ", ".join(dict.fromkeys(paths))
