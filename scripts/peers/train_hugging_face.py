"""Hugging Face's Marian model in a plain training loop, on normlab's batches.

`Seq2SeqTrainer` would group by length more coarsely; this loop gives the model its best case.
"""

from contextlib import nullcontext
from itertools import cycle

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from peers.marian import BOS, PAD, encoder, marian
from peers.turns import Turns
from peers.work import arguments, token_counts

Ids = list[list[int]]
_IGNORED = -100


def main() -> None:
    """Train for as long as there are turns."""
    chosen = arguments("train with Hugging Face", precisions=["fp32", "bf16"])
    work = chosen.work
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = marian(work).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=work.learning_rate, betas=work.betas, fused=True
    )
    low = chosen.precision == "bf16"
    precision = torch.autocast("cpu", torch.bfloat16) if low else nullcontext()
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
        with precision:
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


def padded(sentences: Ids, value: int) -> Tensor:
    """Return sentences as one tensor, [sentences, longest]."""
    rows = [torch.tensor(sentence) for sentence in sentences]
    return pad_sequence(rows, batch_first=True, padding_value=value)


if __name__ == "__main__":
    main()
