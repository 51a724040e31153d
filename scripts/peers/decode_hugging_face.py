"""Beam search of Hugging Face's Marian model, by its `generate`."""

from contextlib import nullcontext
from itertools import repeat

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig

from peers.marian import PAD, encoder, marian
from peers.turns import Turns
from peers.work import arguments


def main() -> None:
    """Decode for as long as there are turns."""
    chosen = arguments("decode with Hugging Face", precisions=["fp32", "bf16"])
    work = chosen.work
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = marian(work).eval()
    how = GenerationConfig(
        **{
            name: value
            for name, value in model.generation_config.to_dict().items()
            if name.endswith("_token_id")
        },
        num_beams=work.beam,
        min_new_tokens=work.length,
        max_new_tokens=work.length,
        do_sample=False,
    )
    low = chosen.precision == "bf16"
    precision = torch.autocast("cpu", torch.bfloat16) if low else nullcontext()
    encode, batches = encoder(work), []
    for sentences in work.decode_batches():
        rows = [torch.tensor(ids) for ids in encode(sentences)]
        batches.append(pad_sequence(rows, batch_first=True, padding_value=PAD))
    turns = Turns(packages=["transformers", "torch"], differs=[])
    everything = {"sentences": sum(len(ids) for ids in batches)}
    for _ in turns.paced(repeat(None), lambda _: everything):
        for ids in batches:
            with precision:
                found = model.generate(
                    ids, attention_mask=(ids != PAD).long(), generation_config=how
                )
            assert found.shape == (len(ids), 1 + work.length), found.shape


if __name__ == "__main__":
    main()
