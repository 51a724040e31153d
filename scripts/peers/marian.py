"""Hugging Face's Marian model in the sizes of the work, with random weights, and its token ids."""

from collections.abc import Callable, Sequence

from transformers import MarianConfig, MarianMTModel

from peers.work import Work

EOS, BOS, PAD = 0, 1, 2
_FIRST_WORD = 3


def marian(work: Work) -> MarianMTModel:
    """Build the model: post-norm, ReLU, sinusoids, one embedding matrix for all three uses."""
    return MarianMTModel(
        MarianConfig(
            vocab_size=_FIRST_WORD + len(work.lines("vocab.txt")),
            d_model=work.dim,
            encoder_layers=work.encoder_layers,
            decoder_layers=work.decoder_layers,
            encoder_attention_heads=work.num_heads,
            decoder_attention_heads=work.num_heads,
            encoder_ffn_dim=work.ffn_dim,
            decoder_ffn_dim=work.ffn_dim,
            activation_function="relu",
            dropout=work.dropout,
            attention_dropout=0.0,
            activation_dropout=0.0,
            scale_embedding=True,
            share_encoder_decoder_embeddings=True,
            tie_word_embeddings=True,
            max_position_embeddings=256,
            eos_token_id=EOS,
            pad_token_id=PAD,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
        )
    )


def encoder(work: Work) -> Callable[[Sequence[str]], list[list[int]]]:
    """Return what turns sentences into ids, each with its end mark."""
    number = {word: _FIRST_WORD + place for place, word in enumerate(work.lines("vocab.txt"))}
    return lambda lines: [[*(number[word] for word in line.split()), EOS] for line in lines]
