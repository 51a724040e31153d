"""What the name of a class suggests about a module or a model.

The class of a module from another package is unknown, but its name often says what it is:
`BertSelfAttention`, `LlamaRMSNorm`, `GPT2LMHeadModel`. Only this file draws conclusions from such
names. A class of torch is recognized by its type as well.
"""

import re
from collections.abc import Iterator, Set
from typing import NamedTuple

from torch import nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd

_CONVOLUTION = {"conv", "convs", "convolution", "convolutional"}
_DROPOUT = {"dropout", "drop", "stochastic"}
_ATTENTION = {"attention", "attn", "att", "attend"}


def class_name(module: nn.Module) -> str:
    """Return the name of a module's class or, for a scripted module, of its original class."""
    return str(getattr(module, "original_name", "") or type(module).__name__)


def is_convolution(module: nn.Module) -> bool:
    """Return whether a module is a convolution of torch, or is named after one."""
    return isinstance(module, _ConvNd) or _has_word(module, _CONVOLUTION)


def is_dropout(module: nn.Module) -> bool:
    """Return whether a module is a dropout layer of torch, or is named after one.

    Stochastic depth counts as dropout: `DropPath` in timm, `StochasticDepth` in torchvision.
    """
    return isinstance(module, _DropoutNd) or _has_word(module, _DROPOUT)


def is_attention(module: nn.Module) -> bool:
    """Return whether a module is torch's attention, or is named after attention."""
    return isinstance(module, nn.MultiheadAttention) or _has_word(module, _ATTENTION)


def is_named_norm(module: nn.Module) -> bool:
    """Return whether a class name contains `norm`, except for weight norm and spectral norm."""
    of_weights = type(module).__module__.startswith("torch.nn.utils")
    return "norm" in class_name(module).lower() and not of_weights


def causality_by_name(name: str) -> bool | None:
    """Return whether a model of the named class is causal, or None if the name does not say.

    `GPT2LMHeadModel` and `LlamaForCausalLM` are causal, `BertForMaskedLM` is not.
    `XLNetLMHeadModel` and `XLMWithLMHeadModel` may be either.
    """
    if re.search("CausalLM|(?<!XLNet)(?<!With)LMHead", name):
        return True
    return False if "MaskedLM" in name else None


class SuggestedPooling(NamedTuple):
    """What a name suggests that a norm pools over, in words and as axes.

    A norm of that name pools over at least one axis of `some`, and over no axis of `none`.
    """

    words: str
    some: frozenset[str]
    none: frozenset[str]


_BATCH, _POSITION, _FEATURE = (frozenset({axis}) for axis in ("batch", "position", "feature"))
_POOLING_BY_NAME = {
    r"batch_?norm|^bn_?\d*$": SuggestedPooling(
        "pooling each feature over the batch", _BATCH, _FEATURE
    ),
    r"instance_?norm": SuggestedPooling(
        "pooling each feature over positions", _POSITION, _BATCH | _FEATURE
    ),
    r"group_?norm|^gn_?\d*$": SuggestedPooling(
        "pooling groups of features per row", _FEATURE | _POSITION, _BATCH
    ),
    r"(layer|rms)_?norm|^ln(_\w+)?$": SuggestedPooling(
        "pooling a token's features", _FEATURE, _BATCH | _POSITION
    ),
}
"""What a norm should pool over, keyed by a pattern for the name of its class or attribute."""


def suggested_poolings(name: str) -> Iterator[SuggestedPooling]:
    """Yield what the name of a norm's class or attribute suggests that the norm pools over."""
    for pattern, suggested in _POOLING_BY_NAME.items():
        if re.search(pattern, name.lower()):
            yield suggested


def _has_word(module: nn.Module, words: Set[str]) -> bool:
    """Return whether the name of a module's class has one of these words.

    The words of `BertSelfAttention` are bert, self and attention.
    """
    name = class_name(module).rpartition(".")[2]
    in_name = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return not words.isdisjoint(map(str.lower, in_name))
