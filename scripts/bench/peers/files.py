"""Write the work to files: the synthetic corpus, and normlab's batches of it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import decode
from bench.common import bench_config, bench_task
from bench.corpus import SyntheticCorpus
from bench.peers.work import Work
from normlab.distributed.process_group import Shard
from normlab.tasks.translation import Translation, TranslationBatch
from normlab.training.runtime import Runtime

MODELS = {"a": ["model=iwslt"], "b": ["model=small"]}
_DECODED_BATCHES = 4
_SENTENCES = 32
_STEPS = 31
_EPOCHS = 3


def config_of(model: str, precision: str) -> dict[str, Any]:
    """Return the config of normlab's own run: post-norm, as the others are."""
    chosen = [*MODELS[model], f"precision={precision}", "placement=post", "device=cpu"]
    return bench_config(chosen)


def start_decoder(
    name: str, config: Mapping[str, Any], runtime: Runtime, *, pairs: int | None = None
) -> decode.Decoder:
    """Return normlab's decoder for the sentences of the benchmark."""
    return decode.start(
        name,
        config,
        runtime,
        batches=_DECODED_BATCHES,
        sentences=_SENTENCES,
        length=_STEPS,
        pairs=pairs,
    )


def write(folder: Path, model: str, *, pairs: int | None = None) -> Work:
    """Write all files for one model; the corpus has `pairs` training pairs.

    Batches are written as normlab draws them with its seed, so that programs that accept ready
    batches get exactly the same ones.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = config_of(model, "fp32")
    corpus = SyntheticCorpus() if pairs is None else SyntheticCorpus(pairs=pairs)
    splits = corpus.splits
    for split in ("train", "valid"):
        _write(folder / f"{split}.src", splits[split].source)
        _write(folder / f"{split}.tgt", splits[split].target)
    _write(folder / "vocab.txt", [f"w{number}" for number in range(corpus.words)])
    task = bench_task(config, pairs=pairs)
    assert isinstance(task, Translation)
    training = task.train_batches(Shard(0, 1), config["seed"])
    batches = []
    while training.epochs < _EPOCHS:
        batches.append(json.dumps(_text(task, next(training))))
    _write(folder / "batches.jsonl", batches)
    runtime = Runtime.start(device="cpu", precision="fp32", threads=1)
    decoder = start_decoder("", config, runtime, pairs=pairs)
    _write(folder / "decode.txt", [s for batch in decoder.batches for s in _text(task, batch)[0]])
    sizes = config["model"]
    work = Work(
        folder=folder,
        model=model,
        encoder_layers=sizes["encoder_layers"],
        decoder_layers=sizes["decoder_layers"],
        dim=sizes["dim"],
        ffn_dim=sizes["ffn_dim"],
        num_heads=sizes["num_heads"],
        dropout=sizes["dropout"],
        label_smoothing=config["task"]["label_smoothing"],
        learning_rate=config["optim"]["lr"],
        betas=tuple(config["optim"]["betas"]),
        max_tokens=config["max_tokens"],
        beam=decoder.settings.beam,
        sentences=_SENTENCES,
        length=_STEPS,
    )
    work.save()
    return work


def _text(task: Translation, batch: TranslationBatch) -> tuple[list[str], list[str]]:
    # Padding and marks are left out by the tokenizers.
    return (
        task.data.source_tokenizer.decode_batch(batch.source.tolist()),
        task.data.target_tokenizer.decode_batch(batch.tgt_in.tolist()),
    )


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(line + "\n" for line in lines), "utf-8")
