"""Normalization layers. They differ in the axes over which they pool statistics.

For `norm=NAME`, `configs/norm/NAME.yaml` names the class and its settings. The class's `formula` is
what runs in training, in evaluation and in compiled code, unless a faster kernel agrees with it.

    base.py        `Norm`: gain, shift and path; and the identity, `NoNorm`
    layer.py       layer norm, and the base class of norms that treat each token separately:
                   rms.py, gated.py, bounded.py, taper.py and `GroupNorm` in group.py
    instance.py    norms of a sequence; group.py also has group norm over a sequence
    running.py     the base class of norms with batch statistics and running statistics
    batch.py       batch norm; regularized.py, renorm.py and repbn.py change it
    square.py      the root mean square of a batch; gradient.py adds the backward pass of power.py,
                   mabn.py (with window.py) and unified.py

`tokens.py` says which tokens of a batch are real, `moments.py` pools statistics, and `axes.py`
names the axes. `fast.py` has the kernels, and `ramp.py` the phases of a run in which a norm behaves
differently. `make.py` builds a norm, and `model_norms.py` takes all norms of a model through a run.
"""
