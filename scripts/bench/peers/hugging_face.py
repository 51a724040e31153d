"""Hugging Face's Marian model: a plain training loop on normlab's batches, and its `generate`.

`Seq2SeqTrainer` would group by length more coarsely; this loop gives the model its best case.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import cycle, repeat

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, MarianConfig, MarianMTModel

from bench.peers.turns import Turns
from bench.peers.work import Work, arguments, token_counts

EOS, BOS, PAD = 0, 1, 2
_FIRST_WORD = 3
_IGNORED = -100


def marian(work: Work) -> MarianMTModel:
    """Build a post-norm model with random weights and one embedding matrix for all three uses."""
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
    """Return a function that turns sentences into ids, each with an end mark."""
    number = {word: _FIRST_WORD + place for place, word in enumerate(work.lines("vocab.txt"))}
    return lambda lines: [[*(number[word] for word in line.split()), EOS] for line in lines]


def train(work: Work, precision: Callable[[], AbstractContextManager[object]]) -> None:
    """Train for as long as there are turns."""
    model = marian(work).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=work.learning_rate, betas=work.betas, fused=True
    )
    encode = encoder(work)
    batches = [(encode(source), encode(target)) for source, target in work.batches()]
    turns = Turns(
        packages=["transformers", "torch"],
        differs=["a plain loop over MarianMTModel, not Seq2SeqTrainer", "normlab's batches"],
    )
    for source, target in turns.paced(cycle(batches), token_counts):
        ids, labels = padded(source, PAD), padded(target, _IGNORED)
        begin = torch.full((len(labels), 1), BOS)
        given = torch.cat([begin, labels[:, :-1]], 1).masked_fill(labels == _IGNORED, PAD)
        optimizer.zero_grad(set_to_none=True)
        with precision():
            logits = model(
                input_ids=ids,
                attention_mask=(ids != PAD).long(),
                decoder_input_ids=given,
                use_cache=False,
            ).logits
            loss = F.cross_entropy(
                logits.flatten(0, 1),
                labels.flatten(),
                ignore_index=_IGNORED,
                label_smoothing=work.label_smoothing,
            )
        loss.backward()
        optimizer.step()


def decode(work: Work, precision: Callable[[], AbstractContextManager[object]]) -> None:
    """Decode until there are no more turns."""
    model = marian(work).eval()
    tokens = {
        name: value
        for name, value in model.generation_config.to_dict().items()
        if name.endswith("_token_id")
    }
    length = {"min_new_tokens": work.length, "max_new_tokens": work.length}
    how = GenerationConfig(**tokens, **length, num_beams=work.beam, do_sample=False)
    encode = encoder(work)
    batches = [padded(encode(sentences), PAD) for sentences in work.decode_batches()]
    turns = Turns(packages=["transformers", "torch"], differs=[])
    everything = {"sentences": sum(len(ids) for ids in batches)}
    for _ in turns.paced(repeat(None), lambda _: everything):
        for ids in batches:
            with precision():
                found = model.generate(
                    ids, attention_mask=(ids != PAD).long(), generation_config=how
                )
            assert found.shape == (len(ids), 1 + work.length), found.shape


def padded(sentences: list[list[int]], value: int) -> torch.Tensor:
    """Return sentences as one tensor, [sentences, longest]."""
    rows = [torch.tensor(sentence) for sentence in sentences]
    return pad_sequence(rows, batch_first=True, padding_value=value)


if __name__ == "__main__":
    chosen = arguments("train or decode with Hugging Face", precisions=["fp32", "bf16"])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    low = chosen.precision == "bf16"
    (train if chosen.kind == "training" else decode)(
        chosen.work, lambda: torch.autocast("cpu", torch.bfloat16) if low else nullcontext()
    )
