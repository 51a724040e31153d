"""Overrides for the small runs of the speed tests; importing this puts scripts/ on the path."""

import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.append(str(SCRIPTS))

MODEL = (
    "model=tiny",
    "model.dim=16",
    "model.ffn_dim=32",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "precision=fp32",
    "device=cpu",
)
"""A model with one layer per stack, on each benchmark's default text."""

TOY = (
    *MODEL,
    "task=toy",
    "task.corpus.size=300",
    "task.vocab_size=200",
    "task.max_length=200",
    "max_tokens=200",
)
"""The same model on three hundred pairs of the toy corpus."""
