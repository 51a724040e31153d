"""Rewrite the golden losses: `python scripts/golden.py`.

They are the training losses of 20 float64 steps of `normlab train` on a small text that is kept
in `tests/golden`, and the validation loss that follows: one run per norm in pre- and post-norm, and
one per placement with layer norm. Other kinds of models have rows for a few norms, on tasks of
their own. A
change that is meant to leave the mathematics alone leaves them alone, to a relative 1e-6; one that
is meant to change it rewrites the file, and the commit says why. `python scripts/golden.py --new`
adds the rows that are missing and leaves the others as they are.
"""

import json
import math
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden" / "losses.txt"
TEXT = GOLDEN.parent / "text"  # 120 German-English sentence pairs, and two each for valid and test
DOCUMENTS = GOLDEN.parent / "documents"  # English sentences
STEPS = 20
HEADER = (
    "# Written by scripts/golden.py: the training loss of each of 20 float64 steps, then the\n"
    "# validation loss.\n"
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
    *("task=digits", "batch_size=20", "optim=adam", "clip_norm=1"),
    *("task.test_batch_sizes=[]", "task.test_eval_stats=[]"),
]
_RECURRENT = [*_DIGITS, "model.dim=6", "model.read=rows", "model.initial_noise=0.1"]
_RESNET = [*_DIGITS, "model.width=8"]
_VIT = [*_DIGITS, "model.dim=8", "model.ffn_dim=16", "model.depth=1", "model.num_heads=2"]
_TEXT = [
    *("task=lm", "task/corpus=documents", f"data_dir={DOCUMENTS}", "task.corpus.boundary=file"),
    "task.vocab_size=263",
    *("task.max_length=16", "task.one_by_one=0", "task.length_buckets=[]", "model=lstm"),
    *("task.test_batch_sizes=[]", "task.test_eval_stats=[]", "batch_size=20", "model.dim=6"),
    *("task.targets.perplexity=[200.0]", "optim=adam", "clip_norm=1"),
]
_ALL = [
    *("schedule.warmup=5", "optim.lr=0.01", f"budget.steps={STEPS}"),
    *("precision=fp64", "device=cpu", "observe.threads=1", "observe.log_every=1"),
    *(f"validate.every={STEPS}", "sink=[jsonl]", "probe=[]", "observe.checkpoint_every=1000"),
]
MODELS = {  # their settings and norms
    "model=lstm": (_RECURRENT, ("none", "ln", "bn", "bn_position")),
    "model=gru": (_RECURRENT, ("ln", "bn_position")),
    "model=rnn": (_RECURRENT, ("ln", "bn_position")),
    "model=resnet8": (_RESNET, ("none", "ln", "bn", "gn_sample")),
    "model=resnet20": (_RESNET, ("bn",)),
    "model=vit": (_VIT, ("ln", "bn")),
    "task=lm": (_TEXT, ("ln", "bn_position")),  # single bytes, by an LSTM
}


def losses(norm: str, place: str, runs_dir: Path, *more: str) -> list[float]:
    """Return the training losses, and last the validation loss, of a run below `runs_dir`.

    `place` is a placement, or a key of `MODELS`; `more` are overrides, which win.
    """
    from normlab.config.compose import compose
    from normlab.train.run import train

    where = runs_dir / norm / place.rpartition("=")[2]
    own, _ = MODELS.get(place, (_RUN, ()))
    train(compose([*own, *_ALL, _override(place), f"norm={norm}", f"runs_dir={where}", *more]))
    (metrics,) = where.rglob("metrics.jsonl")
    rows = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    found = [row[key] for key in ("train/loss", "valid/loss") for row in rows if key in row]
    assert len(found) == STEPS + 1 and all(math.isfinite(loss) for loss in found)
    return found


def _override(place: str) -> str:
    return place if place in MODELS else f"placement={place}"


def render(table: dict[tuple[str, str], list[float]]) -> str:
    """Return the text of the golden file."""
    blocks = []
    for (norm, place), values in sorted(table.items()):
        rows = [values[start : start + 4] for start in range(0, len(values), 4)]
        lines = [f"norm={norm} {_override(place)}"]
        lines += ["  " + " ".join(f"{value:.15g}" for value in row) for row in rows]
        blocks.append("\n".join(lines) + "\n")
    return HEADER + "".join(blocks)


def parse(text: str) -> dict[tuple[str, str], list[float]]:
    """Return what `render` wrote."""
    table: dict[tuple[str, str], list[float]] = {}
    values: list[float] = []
    for line in text.splitlines():
        if line.startswith("norm="):
            norm, place = line.removeprefix("norm=").split()
            values = table[norm, place.removeprefix("placement=")] = []
        elif not line.startswith("#"):
            values += map(float, line.split())
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
        *((norm, model) for model, (_, norms) in MODELS.items() for norm in norms),
    ]


def main() -> int:
    """Carry out all runs, or those that are missing, and write the file."""
    kept = parse(GOLDEN.read_text(encoding="utf-8")) if "--new" in sys.argv[1:] else {}
    with TemporaryDirectory() as folder:
        new = {pair: losses(*pair, Path(folder)) for pair in pairs() if pair not in kept}
    table = kept | new
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(render(table), encoding="utf-8")
    print(f"wrote {GOLDEN.relative_to(ROOT)}: {len(table)} runs, {len(new)} carried out")
    return 0


if __name__ == "__main__":
    sys.exit(main())
