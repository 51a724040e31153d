"""Kernels and formulas of norms."""

from normlab.norms.batch import BatchNorm
from normlab.norms.make import make_norm

OPTIONS = {"bn": BatchNorm, "ln": type(make_norm("ln", 8)), "rms": type(make_norm("rms", 8))}
