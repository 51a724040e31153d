"""Measure what an inspection costs: `python scripts/inspection_cost.py COMMIT`.

Six models of different kinds, with random weights, are asked the quick questions in turn by this
version of normlab and by the one at COMMIT. The cost of an inspection is its CPU time divided by
that of a plain pass of the same batch on one thread, each the lowest of three; `passes` is how
often it runs the model, mostly on single rows. Writes results/survey/inspection_cost.json.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "results" / "survey" / "inspection_cost.json"
REPEATS = 3
WIDTH, LAYERS, HEADS, LENGTH = 128, 4, 4, 64


def bert() -> tuple[Any, Any]:
    """Return an encoder of text."""
    from transformers import BertConfig, BertModel

    sizes = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": 512}
    return BertModel(BertConfig(vocab_size=1000, hidden_size=WIDTH, **sizes)), words()


def gpt2() -> tuple[Any, Any]:
    """Return a causal language model."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=1000, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS)
    return GPT2LMHeadModel(config), words()


def wav2vec2() -> tuple[Any, Any]:
    """Return a model of speech."""
    import torch
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    sizes = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": 512}
    config = Wav2Vec2Config(hidden_size=WIDTH, conv_dim=(64,) * 7, **sizes)
    mask = (torch.arange(8000) < torch.tensor([[8000], [6000], [4500], [4000]])).long()
    values = torch.randn(4, 8000) * mask
    return Wav2Vec2Model(config), {"input_values": values, "attention_mask": mask}


def vit() -> tuple[Any, Any]:
    """Return a Transformer of images."""
    import torch
    from transformers import ViTConfig, ViTModel

    sizes = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": 512}
    config = ViTConfig(hidden_size=WIDTH, image_size=64, patch_size=8, **sizes)
    return ViTModel(config), torch.randn(4, 3, 64, 64)


def convolutions() -> tuple[Any, Any]:
    """Return convolutions with batch norms on images."""
    import torch
    from torch import nn

    def block(width: int, more: int) -> list[nn.Module]:
        return [nn.Conv2d(width, more, 3, padding=1), nn.BatchNorm2d(more), nn.ReLU()]

    widths = [3, 32, 64, 64, 128]
    blocks = [x for pair in pairwise(widths) for x in block(*pair)]
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    return nn.Sequential(*blocks, *head), torch.randn(4, 3, 32, 32)


def lstm() -> tuple[Any, Any]:
    """Return a recurrent network."""
    import torch
    from torch import nn

    return nn.LSTM(WIDTH, WIDTH, 2, batch_first=True), torch.randn(4, LENGTH, WIDTH)


MODELS: Mapping[str, Callable[[], tuple[Any, Any]]] = {
    "BERT": bert,
    "GPT-2": gpt2,
    "Wav2Vec2": wav2vec2,
    "ViT": vit,
    "convolutions": convolutions,
    "LSTM": lstm,
}


def words() -> dict[str, Any]:
    """Return a batch of four rows of tokens, three of them padded on the right."""
    import torch

    mask = (torch.arange(LENGTH) < torch.tensor([[LENGTH], [50], [40], [30]])).long()
    return {"input_ids": torch.randint(5, 1000, (4, LENGTH)) * mask, "attention_mask": mask}


def least(function: Callable[[], object]) -> float:
    """Return the lowest CPU time of several calls in seconds, after a warm-up call."""
    function()
    seconds = []
    for _ in range(REPEATS):
        started = time.process_time()
        function()
        seconds.append(time.process_time() - started)
    return min(seconds)


def measured(name: str) -> dict[str, Any]:
    """Return the cost of inspecting one model with the version of normlab that Python imports."""
    import torch
    from torch import nn

    import normlab

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, batch = MODELS[name]()
    model.eval()
    call = nn.Module.__call__

    def plain() -> None:
        with torch.no_grad():
            model(**batch) if isinstance(batch, Mapping) else model(batch)

    def ten() -> None:
        for _ in range(10):
            plain()

    count = 0

    def counted(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += module is model
        return call(module, *args, **kwargs)

    nn.Module.__call__ = counted
    normlab.inspect(model, [batch])
    nn.Module.__call__ = call
    cost = least(lambda: normlab.inspect(model, [batch])) / (least(ten) / 10)
    return {"passes": count, "cost": round(cost)}


def ask(name: str, folder: Path) -> dict[str, Any]:
    """Return a model's row, measured in a separate process by the normlab in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", __file__, "--measure", name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name} in {folder}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main(commit: str) -> None:
    """Measure all models with both versions, and write the file."""
    with tempfile.TemporaryDirectory() as place:
        former = Path(place) / "former"
        git = ("git", "-C", str(ROOT), "worktree")
        subprocess.run([*git, "add", "-q", "--detach", str(former), commit], check=True)
        try:
            rows = {
                name: {"before": ask(name, former), "after": ask(name, ROOT)} for name in MODELS
            }
        finally:
            subprocess.run([*git, "remove", "--force", str(former)], check=True)
    for name, row in rows.items():
        print(name, row)
    content = {"before": commit, "models": rows}
    FILE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"] and len(sys.argv) == 3:
        print(json.dumps(measured(sys.argv[2])))
    elif len(sys.argv) == 2:
        main(sys.argv[1])
    else:
        sys.exit(__doc__)
