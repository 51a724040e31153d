"""What the documents say of norms, by the axes that each sentence is about.

The documents (D0 to D4) are Chinese; a sentence is given in English with words to find it by.
"""

from collections.abc import Set
from dataclasses import dataclass
from itertools import combinations

from torch import nn

from normlab.inspect.axes import SHAPE, cells, pooled
from normlab.inspect.subject import AXES
from normlab.inspect.worked import document

_BATCH, _POSITION, _FEATURE = (frozenset({axis}) for axis in AXES)


@dataclass(frozen=True)
class Saying:
    """A sentence of a document: its place, what it says, its words, and the axes it pools.

    `note` is what to know besides. A sentence about an image counts its pixels as tokens.
    """

    place: str
    says: str
    words: str
    axes: frozenset[str]
    note: str = ""


SAYINGS = (
    Saying(
        "D0, section 2",
        "position (0,0): mean([1,2,3,4,-1,0,1,2])",
        "位置(0,0)的统计",
        _BATCH | _FEATURE,
        "Called batch norm there. The batch norm of the papers averages no features.",
    ),
    Saying(
        "D0, section 1.3",
        "the mean of the word vectors that all samples have at position 1",
        "所有样本在位置1的词向量的均值",
        _BATCH,
        "A mean of vectors is a vector: each feature by itself.",
    ),
    Saying(
        "D0, section 5.2",
        "text [N, L, D]: BN along [N]",
        "沿`[N]`归一化",
        _BATCH,
        "The papers that put BN into a Transformer (PowerNorm, RegularizedBN) pool [N, L].",
    ),
    Saying(
        "D0, section 2",
        "sample 1, token 1: [1,2,3,4], mean and deviation of these four numbers",
        "用这4个数计算",
        _FEATURE,
    ),
    Saying(
        "D0, section 4",
        "instance norm on BERT: 70.1 % MLM, 97.8 % NSP",
        "实例归一化",
        _POSITION,
        "A token then sees the rest of its sentence, as BERT's attention lets it anyway.",
    ),
    Saying(
        "D0, section 6",
        "images [N, C, H, W]: BN along [N, H, W]",
        "沿[N, H, W]",
        _BATCH | _POSITION,
        "Batch norm as in the papers: the pixels of an image are tokens.",
    ),
    Saying(
        "D1, section 3.1",
        "BN normalizes each feature within a batch",
        "对一个batch-size样本内的每个特征做归一化",
        _BATCH | _POSITION,
    ),
    Saying(
        "D1, section 3.2",
        "BN has to standardize the features at the same position of different samples",
        "对不同样本的同一位置特征进行标准化",
        _BATCH,
        "One reading of BN. Over all positions no alignment is needed.",
    ),
    Saying(
        "D1, section 3.4",
        "BN statistics shared across time steps",
        "across timestep去shared BN的统计量",
        _BATCH | _POSITION,
        "What the papers do in Transformers; the document calls it clearly wrong.",
    ),
    Saying("D1, section 3.4", "LN works on the hidden dimension", "hidden维度", _FEATURE),
    Saying(
        "D2, section 2",
        "BN: mean and variance of channel c over all samples of the batch",
        "所有样本在该通道上的均值",
        _BATCH | _POSITION,
        "On images, the pixels count too.",
    ),
    Saying(
        "D2, section 1",
        "LN: all channels of one sample (of an image, with its pixels)",
        "所有通道 (Channels) 的数据",
        _POSITION | _FEATURE,
        "On a sentence taken whole. Section 4 of the same document normalizes each word.",
    ),
    Saying(
        "D2, section 4",
        "the normalization of one word does not look at the others",
        "每个人(每个 Token)只管自家的事",
        _FEATURE,
    ),
    Saying(
        "D3, section 1",
        "BatchNorm: mean and variance of each channel, from a batch",
        "对每个特征通道计算均值和方差",
        _BATCH | _POSITION,
    ),
    Saying(
        "D3, section 1",
        "LayerNorm: over the feature dimension, each sample by itself",
        "每个样本独立处理",
        _FEATURE,
    ),
    Saying(
        "D4, part 2.1",
        "first, middle and last words of a sentence normalized as one distribution",
        "句首词、句中词、句尾词",
        _BATCH | _POSITION,
    ),
    Saying(
        "D4, part 3",
        "LN(x) = (x - mean) / deviation, along features",
        "沿**特征维度**归一化",
        _FEATURE,
    ),
)


def about(axes: Set[str]) -> list[Saying]:
    """Return the sentences that pool over exactly these axes."""
    return [saying for saying in SAYINGS if saying.axes == axes]


@dataclass(frozen=True)
class Attempt:
    """A call of `nn.BatchNorm1d` as a document has it or nearly so, and what comes of it."""

    call: str
    error: str | None
    axes: frozenset[str] | None


def attempts() -> list[Attempt]:
    """Run the code of D0, section 7, and its two repairs on the documents' tensor.

    The axes that a call pools over are found from its output: the set over which it has mean 0.
    """
    x = document()
    _, length, width = SHAPE
    trials = {
        f"BatchNorm1d(seq_len={length})(x.permute(0, 2, 1))": (length, True),
        f"BatchNorm1d(seq_len={length})(x)": (length, False),
        f"BatchNorm1d(hidden_dim={width})(x.permute(0, 2, 1))": (width, True),
    }
    found = []
    for call, (channels, turned) in trials.items():
        norm = nn.BatchNorm1d(channels, affine=False).double()
        try:
            y = norm(x.permute(0, 2, 1)).permute(0, 2, 1) if turned else norm(x)
        except (RuntimeError, ValueError) as error:
            found.append(Attempt(call, str(error).splitlines()[0], None))
            continue
        found.append(Attempt(call, None, _smallest_axes(y.tolist())))
    return found


def _smallest_axes(y: list[list[list[float]]]) -> frozenset[str]:
    for axes in (set(axes) for size in (1, 2, 3) for axes in combinations(AXES, size)):
        sums = (sum(y[s][t][d] for s, t, d in pooled(cell, axes)) for cell in cells())
        if all(abs(each) < 1e-6 for each in sums):
            return frozenset(axes)
    raise AssertionError("a batch norm's output has mean 0 over some axes")
