"""Beam search of CTranslate2 (inference only), on a model of the same sizes with random weights.

The model follows CTranslate2's own Transformer specification and is saved by its converter, which
shares one embedding matrix among its three uses and, for int8, quantizes the weights.
"""

import math
from itertools import repeat
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.converters import Converter
from ctranslate2.specs import Activation, TransformerSpec

from bench.peers.turns import Turns
from bench.peers.work import Work, arguments

_SPECIALS = ["<unk>", "<s>", "</s>"]
_POSITIONS = 256
_TYPES = {"fp32": "float32", "int8": "int8_float32"}


class RandomModel(Converter):
    """A converter without a source model: the sizes of the work with random weights."""

    def __init__(self, work: Work):
        self._work = work
        self._rng = np.random.default_rng(1)

    def _load(self) -> TransformerSpec:
        work = self._work
        spec = TransformerSpec.from_config(
            (work.encoder_layers, work.decoder_layers),
            work.num_heads,
            pre_norm=False,
            activation=Activation.RELU,
        )
        words = [*_SPECIALS, *work.lines("vocab.txt")]
        embeddings = self._random(len(words), work.dim)
        for stack in (spec.encoder, spec.decoder):
            stack.scale_embeddings = True
            table = stack.embeddings
            (table[0] if isinstance(table, list) else table).weight = embeddings
            stack.position_encodings.encodings = sinusoids(_POSITIONS, work.dim)
            for layer in stack.layer:
                self._attention(layer.self_attention)
                if hasattr(layer, "attention"):
                    self._attention(layer.attention)
                self._linear(layer.ffn.linear_0, work.ffn_dim, work.dim)
                self._linear(layer.ffn.linear_1, work.dim, work.ffn_dim)
                self._norm(layer.ffn.layer_norm)
        spec.decoder.projection.weight = embeddings
        spec.register_source_vocabulary(words)
        spec.register_target_vocabulary(words)
        return spec

    def _attention(self, attention: Any) -> None:
        # The projections to queries, keys and values that share an input are one matrix.
        dim, parts = self._work.dim, {2: (3, 1), 3: (1, 2, 1)}[len(attention.linear)]
        for linear, part in zip(attention.linear, parts, strict=True):
            self._linear(linear, part * dim, dim)
        self._norm(attention.layer_norm)

    def _linear(self, linear: Any, outputs: int, inputs: int) -> None:
        linear.weight = self._random(outputs, inputs)
        linear.bias = np.zeros(outputs, np.float32)

    def _norm(self, norm: Any) -> None:
        norm.gamma = np.ones(self._work.dim, np.float32)
        norm.beta = np.zeros(self._work.dim, np.float32)

    def _random(self, outputs: int, inputs: int) -> np.ndarray:
        scale = 1 / math.sqrt(inputs)
        return self._rng.normal(0, scale, (outputs, inputs)).astype(np.float32)


def sinusoids(positions: int, dim: int) -> np.ndarray:
    """Return sine and cosine position encodings, [positions, dim]."""
    rates = np.exp(-math.log(10000) * np.arange(dim // 2) / (dim // 2 - 1))
    angles = np.arange(positions)[:, None] * rates[None]
    return np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)


def saved(work: Work, folder: Path, precision: str) -> Path:
    """Write the model and return its folder."""
    quantization = _TYPES[precision] if precision == "int8" else None
    return Path(RandomModel(work).convert(str(folder), quantization=quantization, force=True))


def main() -> None:
    """Decode until there are no more turns."""
    chosen = arguments("decode with CTranslate2", precisions=list(_TYPES))
    work = chosen.work
    path = saved(work, chosen.scratch / "model", chosen.precision)
    translator = ctranslate2.Translator(
        str(path),
        device="cpu",
        compute_type=_TYPES[chosen.precision],
        inter_threads=1,
        intra_threads=1,
    )
    batches = [[[*line.split(), "</s>"] for line in batch] for batch in work.decode_batches()]
    turns = Turns(packages=["ctranslate2"], differs=["C++, for inference only"])
    everything = {"sentences": sum(len(batch) for batch in batches)}
    for _ in turns.paced(repeat(None), lambda _: everything):
        for batch in batches:
            found = translator.translate_batch(
                batch,
                beam_size=work.beam,
                min_decoding_length=work.length,
                max_decoding_length=work.length,
            )
            lengths = {len(result.hypotheses[0]) for result in found}
            assert lengths == {work.length}, lengths


if __name__ == "__main__":
    main()
