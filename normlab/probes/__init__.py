"""Probes, which observe a training run without changing it.

`base.py` has the base class, and `sites.py` names the places in a model that probes measure:

    activations.py      norm inputs, sub-layer outputs, the residual stream, drift, attention
    gradients.py        gradients by layer, and the size of updates
    independence.py     how similar the tokens in a batch are
    loss.py             loss spikes, gradient norm, a change of the sequence length
    representation.py   rank of the residual stream, saturation of bounded norms
    statistics.py       batch statistics: discrepancy, fluctuation, padding, gradient

A probe's options are in `configs/probe`, and the names of its metrics in `metrics/glossary.py`.
"""
