"""Placements: where the norms and residual connections of a Transformer are. Each file has one.

Each file begins with its equation. There, x is the residual stream [B, P, D] before a sub-layer and
y the stream after it, f is the sub-layer followed by dropout, and norm is any norm of `norms/`.
A closing norm is a norm after the last layer. The default initialization is Xavier with fairseq's
gains, or normal, depending on the model.
"""
