"""Rewrite the golden losses: `python scripts/golden.py`.

They are the training losses of 20 steps of `normlab train` on a small text in `tests/golden`, then
the validation loss and the test scores: one run per norm in pre- and post-norm, one per placement
with layer norm, and a few norms per entry of `SETTINGS`: other models and tasks, and options that
change the arithmetic of a run. If a change of the code is not meant to change the mathematics, the
losses must stay the same to a relative 1e-6. If it is, rewrite the file and say why in the commit.
`python scripts/golden.py --new` adds missing rows and leaves the others unchanged.

All runs except those in bf16 use float64. Processors with bf16 instructions round differently from
those without, so bf16 losses are compared with the tolerance `ROUNDING`, and without test scores.
"""

import json
import math
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden" / "losses.txt"
TEXT = GOLDEN.parent / "text"  # 120 German-English sentence pairs, and two each for valid and test
DOCUMENTS = GOLDEN.parent / "documents"  # English sentences
PARAGRAPHS = GOLDEN.parent / "paragraphs"  # the same text as short documents, for segment pairs
STEPS = 20
TOLERANCE = 1e-6
ROUNDING = 5e-3  # relative; the losses of bf16 differ by up to 5e-4 from those of float64
HEADER = (
    "# Written by scripts/golden.py: the training loss of each of 20 steps, the validation loss, "
    "the\n# test scores.\n"
)

_RUN = [
    *("task=translation", f"data_dir={TEXT}", "task.vocab_size=150", "task.max_length=128"),
    "task.test_search.beam=1",
    *("task.valid_search.length_offset=1", "task.test_search.length_offset=1"),
    *("task.valid_search.length_factor=0.0", "task.test_search.length_factor=0.0"),
    *("model=tiny", "model.dim=32", "model.ffn_dim=24", "model.num_heads=2"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "model.max_positions=256"),
    "batch_size=6",
]
_DIGITS = [
    *("task=digits", "batch_size=20", "optim=adam", "clip_grad=1"),
    *("task.test_batch_sizes=[]", "task.test_eval_stats=[]"),
]
_RECURRENT = [*_DIGITS, "model.dim=6", "model.read=rows", "model.initial_noise=0.1"]
_RESNET = [*_DIGITS, "model.width=8"]
_VIT = [*_DIGITS, "model.dim=8", "model.ffn_dim=16", "model.depth=1", "model.num_heads=2"]
_DOCUMENTS = [
    *("task/corpus=documents", "task.vocab_size=263", "task.max_length=16"),
    *("task.length_buckets=[]", "task.test_batch_sizes=[]", "task.test_eval_stats=[]"),
    *("batch_size=20", "optim=adam", "clip_grad=1"),
]
_TEXT = [
    *("task=lm", *_DOCUMENTS, f"data_dir={DOCUMENTS}", "task.corpus.boundary=file"),
    *("task.one_by_one=0", "task.targets.perplexity=[200.0]"),
]
_STACK = [
    *("model=bert_tiny", "model.dim=32", "model.ffn_dim=24", "model.num_heads=2", "model.depth=1"),
]
_MODERN = ["model.dim=32", "model.ffn_dim=24", "model.num_heads=2", "model.depth=1"]
_ALL = [
    *("schedule.warmup=5", "optim.lr=0.01", f"budget.steps={STEPS}"),
    *("precision=fp64", "device=cpu", "observe.threads=1", "observe.log_every=1"),
    *(f"validate.every={STEPS}", "sink=[jsonl]", "probe=[]", "observe.checkpoint_every=1000"),
    "divergence_factor=1e9",  # the losses are compared even if twenty steps at this rate diverge
]
SETTINGS = {  # overrides and norms of each setting
    "model=lstm": (_RECURRENT, ("none", "ln", "bn", "bn_position")),
    "model=gru": (_RECURRENT, ("ln", "bn_position")),
    "model=rnn": (_RECURRENT, ("ln", "bn_position")),
    "model=resnet8": (_RESNET, ("none", "ln", "bn", "gn_sample")),
    "model=resnet20": (_RESNET, ("bn",)),
    "model=vit": (_VIT, ("ln", "bn")),
    "task=lm": ([*_TEXT, "model=lstm", "model.dim=6"], ("ln", "bn_position")),  # of single bytes
    "model=bert_tiny": ([*_TEXT, *_STACK], ("ln", "bn")),  # a causal Transformer
    "recipe=llama": ([*_TEXT, *_MODERN], ("rms", "bn")),
    "recipe=gemma3": ([*_TEXT, *_MODERN], ("rms",)),
    "task=mlm": ([*_STACK, *_DOCUMENTS, f"data_dir={PARAGRAPHS}"], ("ln", "bn")),
    "accumulate=2": (_RUN, ("ln", "bn", "pn")),
    "norm.ghost=3": (_RUN, ("bn", "pn")),
    "task.test_eval_stats=[batch,recalibrated]": ([*_TEXT, *_STACK], ("bn", "pn")),
    "precision=bf16": (_RUN, ("ln", "bn")),
}


class Golden(NamedTuple):
    """The losses of a run, the validation loss last, and its test scores."""

    losses: list[float]
    scores: dict[str, float]


def run(norm: str, place: str, runs_dir: Path, *more: str) -> Golden:
    """Return the losses and test scores of a run below `runs_dir`.

    `place` is a placement, or a key of `SETTINGS`; `more` are overrides, which take precedence.
    """
    from normlab.config.compose import compose
    from normlab.training import train

    where = runs_dir / norm / re.sub(r"\W", "_", place)
    own, _ = SETTINGS.get(place, (_RUN, ()))
    overrides = [*own, *_ALL, f"norm={norm}", _override(place), f"runs_dir={where}", *more]
    record = train(compose(overrides))
    (metrics,) = where.rglob("metrics.jsonl")
    rows = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    losses = [row[key] for key in ("train/loss", "valid/loss") for row in rows if key in row]
    assert len(losses) == STEPS + 1 and all(math.isfinite(loss) for loss in losses)
    tested = {
        name: score.value
        for name, score in record.scores.items()
        if name.startswith("test/") and "/best_" not in name
    }
    return Golden(losses, {} if place == "precision=bf16" else tested)


def _override(place: str) -> str:
    return place if place in SETTINGS else f"placement={place}"


def render(table: dict[tuple[str, str], Golden]) -> str:
    """Return the text of the golden file."""
    blocks = []
    for (norm, place), (losses, scores) in sorted(table.items()):
        rows = [losses[start : start + 4] for start in range(0, len(losses), 4)]
        lines = [f"norm={norm} {_override(place)}"]
        lines += ["  " + " ".join(f"{value:.15g}" for value in row) for row in rows]
        lines += [f"  {name} {value:.15g}" for name, value in scores.items()]
        blocks.append("\n".join(lines) + "\n")
    return HEADER + "".join(blocks)


def parse(text: str) -> dict[tuple[str, str], Golden]:
    """Return what `render` wrote."""
    table: dict[tuple[str, str], Golden] = {}
    golden = Golden([], {})
    for line in text.splitlines():
        first, *others = line.split()
        if first.startswith("norm="):
            place = others[0].removeprefix("placement=")
            golden = table[first.removeprefix("norm="), place] = Golden([], {})
        elif first.startswith("test/"):
            golden.scores[first] = float(others[0])
        elif not line.startswith("#"):
            golden.losses.extend(map(float, line.split()))
    return table


def pairs() -> list[tuple[str, str]]:
    """Return the norms and placements of the runs."""
    from normlab.config.registry import option_names

    basic = ("post", "pre")
    # In a stack of one layer LNS is pre-norm; ReZero has no norms.
    other = [name for name in option_names("placement") if name not in (*basic, "lnscaling")]
    return [
        *((norm, placement) for norm in option_names("norm") for placement in basic),
        *(("none" if name == "rezero" else "ln", name) for name in other),
        *((norm, setting) for setting, (_, norms) in SETTINGS.items() for norm in norms),
    ]


def main() -> int:
    """Execute all runs, or only the missing ones, and write the file."""
    kept = parse(GOLDEN.read_text(encoding="utf-8")) if "--new" in sys.argv[1:] else {}
    with TemporaryDirectory() as folder:
        new = {pair: run(*pair, Path(folder)) for pair in pairs() if pair not in kept}
    table = kept | new
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(render(table), encoding="utf-8")
    print(f"wrote {GOLDEN.relative_to(ROOT)}: {len(table)} runs, {len(new)} carried out")
    return 0


if __name__ == "__main__":
    sys.exit(main())
