"""Beam search of eole, by its inference engine on a model that it trained for one step."""

from itertools import repeat

import eole.train_single
import torch
from eole.config.run import PredictConfig
from eole.inference_engine import InferenceEnginePY

from peers.train_eole import config
from peers.turns import Turns
from peers.work import arguments


def main() -> None:
    """Decode for as long as there are turns."""
    chosen = arguments("decode with eole", precisions=["fp32"])
    work = chosen.work
    torch.set_num_threads(1)
    training = config(work, chosen.scratch, precision=chosen.precision, steps=1)
    turns = Turns(packages=["eole", "torch"], differs=["pre-norm", "the source has no end mark"])
    eole.train_single.main(training, device_id=-1)
    engine = InferenceEnginePY(
        PredictConfig(
            model_path=[str(chosen.scratch / "model")],
            src="",
            gpu_ranks=[],
            beam_size=work.beam,
            min_length=work.length,
            max_length=work.length,
            batch_type="sents",
            batch_size=work.sentences,
        )
    )
    batches = work.decode_batches()
    everything = {"sentences": sum(len(batch) for batch in batches)}
    for _ in turns.paced(repeat(None), lambda _: everything):
        for batch in batches:
            _, _, found = engine.infer_list(batch)
            lengths = {len(best[0].split()) for best in found}
            assert lengths == {work.length}, lengths


if __name__ == "__main__":
    main()
