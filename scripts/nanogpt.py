"""Train nanoGPT's own code on Shakespeare: `python scripts/nanogpt.py CLONE INPUT SEED...`.

CLONE is a checkout of karpathy/nanoGPT, INPUT is char-rnn's input.txt. The script runs the CPU
command in nanoGPT's README with each seed instead of 1337, validates on as many random windows as
fit into the held-out tenth (the README uses 20 batches), and writes
results/published_nanogpt/theirs.json. A seed takes about four minutes on an idle core.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import fmean, stdev

from normlab.records.files import atomic_write

PATH = Path(__file__).resolve().parents[1] / "results" / "published_nanogpt" / "theirs.json"
SETTINGS = {"device": "cpu", "compile": False, "eval_iters": 145, "log_interval": 500}
SETTINGS |= {"block_size": 64, "batch_size": 12, "n_layer": 4, "n_head": 4, "n_embd": 128}
SETTINGS |= {"max_iters": 2000, "lr_decay_iters": 2000, "dropout": 0.0, "eval_interval": 2000}
SEED = "1337 + seed_offset"


def validation_loss(clone: Path, seed: int) -> float:
    """Return the validation loss after the last update; raises ValueError if there is none."""
    text = (clone / "train.py").read_text("utf-8")
    if SEED not in text:
        raise ValueError(f"{clone / 'train.py'}: no {SEED!r} to put the seed in place of")
    script = clone / f"train_{seed}.py"
    script.write_text(text.replace(SEED, str(seed)), "utf-8")
    words = [f"--{key}={value}" for key, value in SETTINGS.items()]
    command = [sys.executable, script.name, "config/train_shakespeare_char.py", *words]
    done = subprocess.run([*command, f"--out_dir=out_{seed}"], cwd=clone, text=True, stdout=-1)
    losses = re.findall(rf"step {SETTINGS['max_iters']}: .*val loss ([0-9.]+)", done.stdout)
    if done.returncode or not losses:
        raise ValueError(f"{clone}: train.py ended with {done.returncode} and no validation loss")
    return float(losses[-1])


def main(clone: Path, text: Path, seeds: list[int]) -> int:
    """Prepare the text as nanoGPT does, train with each seed, and write the validation losses."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=clone, text=True, stdout=-1)
    shutil.copy(text, clone / "data" / "shakespeare_char" / "input.txt")
    prepare = [sys.executable, "data/shakespeare_char/prepare.py"]
    subprocess.run(prepare, cwd=clone, check=True)
    losses = {str(seed): validation_loss(clone, seed) for seed in seeds}
    record = {
        "source": "karpathy/nanoGPT",
        "commit": commit.stdout.strip(),
        "text": hashlib.sha256(text.read_bytes()).hexdigest(),
        "settings": SETTINGS,
        "val_loss": losses,
        "mean": fmean(losses.values()),
        "sd": stdev(losses.values()),
    }
    PATH.parent.mkdir(exist_ok=True)
    with atomic_write(PATH) as file:
        file.write(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 5:  # a standard deviation needs two seeds
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), [int(seed) for seed in sys.argv[3:]]))
