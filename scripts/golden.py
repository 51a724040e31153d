"""Rewrite the golden losses: `python scripts/golden.py`.

They are the training losses of 20 float64 steps of `normlab train` on a small toy corpus and the
validation loss that follows, one run for each norm in pre- and post-norm and for each placement
with layer norm. A change that is meant to leave the
mathematics alone leaves them alone, to a relative 1e-6; one that is meant to change it rewrites
the file, and the commit says why.
"""

import json
import math
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden" / "losses.txt"
STEPS = 20
HEADER = (
    "# Written by scripts/golden.py: the training loss of each of 20 float64 steps, then the\n"
    "# validation loss.\n"
)

_RUN = [
    *("task=toy", "task.corpus.size=120", "task.corpus.valid_size=2", "task.corpus.test_size=2"),
    *("task.vocab_size=150", "task.test_search.beam=1"),
    *("task.valid_search.length_offset=1", "task.test_search.length_offset=1"),
    *("task.valid_search.length_factor=0.0", "task.test_search.length_factor=0.0"),
    *("model=tiny", "model.dim=32", "model.ffn_dim=24", "model.num_heads=2"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "model.max_positions=256"),
    *("batch_size=6", "schedule.warmup=5", "optim.lr=0.01", f"budget.steps={STEPS}"),
    *("precision=fp64", "device=cpu", "observe.threads=1", "observe.log_every=1"),
    *(f"validate.every={STEPS}", "sink=[jsonl]", "probe=[]", "observe.checkpoint_every=1000"),
]


def losses(norm: str, placement: str, runs_dir: Path) -> list[float]:
    """Return the training losses, and last the validation loss, of a run below `runs_dir`."""
    from normlab.config import compose
    from normlab.run import train

    where = runs_dir / f"{norm}-{placement}"
    train(compose([*_RUN, f"norm={norm}", f"placement={placement}", f"runs_dir={where}"]))
    (metrics,) = where.rglob("metrics.jsonl")
    rows = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    found = [row[key] for key in ("train/loss", "valid/loss") for row in rows if key in row]
    assert len(found) == STEPS + 1 and all(math.isfinite(loss) for loss in found)
    return found


def render(table: dict[tuple[str, str], list[float]]) -> str:
    """Return the text of the golden file."""
    blocks = []
    for (norm, placement), values in sorted(table.items()):
        rows = [values[start : start + 4] for start in range(0, len(values), 4)]
        lines = [f"norm={norm} placement={placement}"]
        lines += ["  " + " ".join(f"{value:.15g}" for value in row) for row in rows]
        blocks.append("\n".join(lines) + "\n")
    return HEADER + "".join(blocks)


def parse(text: str) -> dict[tuple[str, str], list[float]]:
    """Return what `render` wrote."""
    table: dict[tuple[str, str], list[float]] = {}
    values: list[float] = []
    for line in text.splitlines():
        if line.startswith("norm="):
            norm, placement = (word.partition("=")[2] for word in line.split())
            values = table[norm, placement] = []
        elif not line.startswith("#"):
            values += map(float, line.split())
    return table


def pairs() -> list[tuple[str, str]]:
    """Return the norms and placements of the runs."""
    from normlab.registry import option_names

    basic = ("post", "pre")
    # In a stack of one layer LNS is pre-norm; ReZero has no norms.
    other = [name for name in option_names("placement") if name not in (*basic, "lnscaling")]
    return [
        *((norm, placement) for norm in option_names("norm") for placement in basic),
        *(("none" if name == "rezero" else "ln", name) for name in other),
    ]


def main() -> int:
    """Carry out all runs and write the file."""
    with TemporaryDirectory() as folder:
        table = {pair: losses(*pair, Path(folder)) for pair in pairs()}
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(render(table), encoding="utf-8")
    print(f"wrote {GOLDEN.relative_to(ROOT)}: {len(table)} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
