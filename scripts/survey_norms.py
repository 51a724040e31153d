"""Count the norms in published models: `python scripts/survey_norms.py [NAMES]`, or `timm`.

Builds each class that `scripts/survey.py transformers` examined, runs it once, and writes
results/survey/norms.json: how many norms of each kind it has (recognized by what they compute), and
whether its blocks normalize before their sub-layers (`pre`: a norm takes the block's input), after
the residual sum (`post`: the block's output is a norm's output), or both. Rows of classes that are
not named are kept. With `timm`, the smallest model of each family in timm is built but not run, and
its norms are counted in results/survey/vision_norms.json.
"""

import json
import signal
import sys
from collections import Counter
from functools import partial
from typing import Any

import survey
import torch
import transformers
from surveyed import transformers as library
from torch import Tensor, nn

from normlab.records.files import atomic_write

KINDS = ("layer", "rms", "batch", "group", "instance", "other")
TORCHS = {
    nn.LayerNorm: "layer",
    nn.RMSNorm: "rms",
    nn.modules.batchnorm._BatchNorm: "batch",
    nn.GroupNorm: "group",
    nn.modules.instancenorm._InstanceNorm: "instance",
}


def kind(module: nn.Module) -> str | None:
    """Return a norm's kind, by its class or by what changes its output; else None."""
    for torchs, name in TORCHS.items():
        if isinstance(module, torchs):
            return name
    if "norm" not in type(module).__name__.lower() or [*module.children()]:
        return None
    weights = [each for each in module.parameters() if each.dim() == 1]
    if not weights:
        return "other"
    x = torch.randn(2, 3, len(weights[0]))
    try:
        with torch.no_grad():
            before, scaled, shifted = module(x), module(2 * x), module(x + 1)
    except Exception:
        return "other"
    if not torch.allclose(before, scaled, atol=1e-3):
        return "other"
    return "layer" if torch.allclose(before, shifted, atol=1e-3) else "rms"


def blocks(model: nn.Module) -> list[nn.Module]:
    """Return the members of the outermost module lists that contain norms."""
    found: list[nn.Module] = []

    def look(module: nn.Module) -> None:
        for child in module.children():
            if isinstance(child, nn.ModuleList | nn.Sequential) and len(child):
                inside = [b for b in child if any(kind(each) for each in b.modules())]
                if inside and len({type(each) for each in child}) < 3:
                    found.extend(inside)
                    continue
            look(child)

    look(model)
    return found


def tensor_of(values: Any) -> Tensor | None:
    """Return the first tensor of three or more axes among a module's inputs or outputs."""
    if isinstance(values, Tensor):
        return values if values.dim() >= 3 else None
    if isinstance(values, dict):
        values = [values.get("hidden_states"), *values.values()]
    for each in values if isinstance(values, list | tuple) else ():
        if (found := tensor_of(each)) is not None:
            return found
    return None


def order(model: nn.Module, batch: dict[str, Tensor]) -> str:
    """Return where most blocks normalize: `pre`, `post`, `both` or `neither`."""
    seen: dict[nn.Module, tuple[Any, Any]] = {}

    def keep(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        seen[module] = (tensor_of([*args, kwargs]), tensor_of(output))

    found = blocks(model)
    norms = {block: [each for each in block.modules() if kind(each)] for block in found}
    watched = {*found, *(each for several in norms.values() for each in several)}
    for each in watched:
        each.register_forward_hook(keep, with_kwargs=True)
    with torch.no_grad():
        model(**batch)
    counted = Counter(_order(seen, block, norms[block]) for block in found if block in seen)
    counted.pop("neither", None)  # such as ModernBERT's first block, which lacks the first norm
    return counted.most_common(1)[0][0] if counted else "neither"


def _order(seen: dict[nn.Module, tuple[Any, Any]], block: nn.Module, norms: list[nn.Module]) -> str:
    def same(a: Tensor | None, b: Tensor | None) -> bool:
        return a is not None and b is not None and a.data_ptr() == b.data_ptr()

    start, end = seen[block]
    calls = [seen[each] for each in norms if each in seen]
    pre = any(same(entered, start) for entered, _ in calls)
    post = any(same(left, end) for _, left in calls)
    return {(True, True): "both", (True, False): "pre", (False, True): "post"}.get(
        (pre, post), "neither"
    )


def ask(library: Any, name: str) -> dict[str, Any]:
    """Return the row of a class."""
    signal.setitimer(signal.ITIMER_PROF, survey.BUILD_SECONDS)
    subject = library.subject(name)
    signal.setitimer(signal.ITIMER_PROF, survey.SECONDS)
    kinds = Counter(filter(None, map(kind, subject.model.modules())))
    return {"norms": dict(sorted(kinds.items())), "order": order(subject.model, subject.batches[0])}


def of_images() -> None:
    """Count the norms in the smallest model of each family in timm, and write the file."""
    import timm
    from surveyed import timm as families

    rows: dict[str, dict[str, int]] = {}
    for name in sorted(set(families.classes()) - {families.FLEX}):
        with torch.device("meta"):
            model = timm.create_model(name)
        kinds = Counter(filter(None, map(_kind_of_empty, model.modules())))
        rows[name] = dict(sorted(kinds.items()))
    content = {"timm": timm.__version__, "classes": rows}
    with atomic_write(survey.FOLDER / "vision_norms.json") as file:
        file.write(survey.one_model_per_line(content))


def _kind_of_empty(module: nn.Module) -> str | None:
    """Return the kind of a norm without weight values; weights of 1 are enough to recognize it."""
    if "norm" in type(module).__name__.lower() and not [*module.children()]:
        module.to_empty(device="cpu")
        for each in module.parameters():
            each.data.fill_(1)
    return kind(module)


def main(names: list[str]) -> None:
    """Examine the named classes, or all that the survey examined, and write the file."""
    path = survey.FOLDER / "norms.json"
    rows = json.loads(path.read_text("utf-8"))["classes"] if path.exists() else {}
    asked = json.loads((survey.FOLDER / "transformers.json").read_text("utf-8"))["classes"]
    for name in names or [name for name, row in asked.items() if "inputs" in row]:
        rows[name] = survey.row_of(library, name, partial(survey.work, ask))
        print(name, rows[name], flush=True)
    content = {"transformers": transformers.__version__, "classes": dict(sorted(rows.items()))}
    with atomic_write(path) as file:
        file.write(survey.one_model_per_line(content))


if __name__ == "__main__":
    torch.set_num_threads(1)
    of_images() if sys.argv[1:] == ["timm"] else main(sys.argv[1:])
