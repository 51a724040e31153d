"""Beam search of fairseq, by its `SequenceGenerator` on a model with random weights."""

from itertools import repeat

import torch
from fairseq import tasks
from fairseq.sequence_generator import SequenceGenerator

from peers.train_fairseq import config
from peers.turns import Turns
from peers.work import arguments


def main() -> None:
    """Decode for as long as there are turns."""
    chosen = arguments("decode with fairseq", precisions=["fp32"])
    work = chosen.work
    torch.set_num_threads(1)
    torch.manual_seed(1)
    settings = config(work, chosen.scratch)
    task = tasks.setup_task(settings.task)
    model = task.build_model(settings.model)
    model.prepare_for_inference_(settings)
    words = work.length - 1  # the last step is the end mark
    generator = SequenceGenerator(
        [model],
        task.target_dictionary,
        beam_size=work.beam,
        max_len_a=0,
        max_len_b=words,
        min_len=words,
    )
    encode = task.source_dictionary.encode_line
    batches = []
    for lines in work.decode_batches():
        rows = [encode(line, add_if_not_exist=False).long() for line in lines]
        data = task.build_dataset_for_inference(rows, [len(row) for row in rows])
        batches.append(data.collater([data[place] for place in range(len(rows))]))
    turns = Turns(packages=["fairseq-fixed", "torch"], differs=[])
    everything = {"sentences": sum(sample["nsentences"] for sample in batches)}
    for _ in turns.paced(repeat(None), lambda _: everything):
        for sample in batches:
            found = task.inference_step(generator, [model], sample)
            lengths = {len(each["tokens"]) for hypotheses in found for each in hypotheses}
            assert lengths == {work.length}, lengths


if __name__ == "__main__":
    main()
