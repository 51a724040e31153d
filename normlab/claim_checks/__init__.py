"""Checks that decide parts of claims in seconds by applying norms to small, fixed inputs.

`normlab.claims` judges claims by the records of runs and by the findings of these checks. It must
not import torch, models or the measurements of `normlab.inspection`. Checks need them, so they are
in a package above both.

In a claim's file, `check:` names a check, such as `padding.pollutes` in `padding.py`. A check is a
function with the decorator `check` (`check.py`). It compares what other functions measured with a
sentence of an article, and words the result. `inputs.py` has the norms and values that checks
share, and `word_attention.py` measures attention over the words of article 3. The other modules
have the checks that decide the claims with these numbers (`normlab claims NUMBER` quotes their
sentences):

    affine.py       46              layer norm has one transform, batch norm one for each feature
    axes.py         11, 37, 46, 53  batch norm pools the same position; the example's first means
    batch.py        13, 14, 16, 17, 33, 56   single sentences, longer ones, batch mates, decoding
                                    token by token, several processes, the order of samples
    code.py         59              the articles' code runs
    depth.py        26, 43, 62      gradients vanish with post-norm and explode without a norm
    facts.py        57              what BERT-base and other models have
    images.py       56              batch norm fits images: shifts, channels, colours of a pixel
    marks.py        58              marks of a class, coaches, pupils lined up by height
    mixing.py       56              a Transformer mixes features, and a CNN has one kernel
    modes.py        12, 15, 38, 47  training and inference; what a norm keeps between batches
    order.py        20              the order of features, and of samples
    outlier.py      29, 55          999 becomes a value between about -1 and 1; it saturates the
                                    softmax, and layer norm prevents that
    padding.py      7, 8, 60        padding distorts batch norm's statistics, not layer norm
    positions.py    11, 19, 53, 57  words at a position differ, and sentences differ in length
    residual.py     31              batch norm after the sum disturbs the residual stream
    sampling.py     9               the variance of the mean is sigma^2 / N
    shape.py        55              outputs are standard normal, or have mean b and variance g^2
"""

from collections.abc import Sequence

from normlab.claims.evidence import CheckFinding
from normlab.findings.question import Question, questions_below


def checks(names: Sequence[str] = ()) -> list[Question]:
    """Return all checks, or the named ones, sorted by file.

    Raises UserError if a name is unknown.
    """
    return questions_below(__package__ or "", "claim", names=names)


def compute(name: str) -> list[CheckFinding]:
    """Run a check and return its findings.

    Raises a UserError that lists all checks if the name is unknown.
    """
    (check,) = checks([name])
    return check.ask()
