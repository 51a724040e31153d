"""Run the authors' norms and keep what they compute: `python scripts/parity.py FOLDER [NAME ...]`.

FOLDER holds the repositories as `owner+name`, each a clone or a bare one; their code is never part
of this project. Of each subject below `tests/norms/traces/NAME.npz` is written: some steps of
training in float64 on inputs that numpy draws from a seed, with outputs and gradients at every
step, and whatever the norm keeps. `tests/norms/test_parity.py` holds our norms against them.
"""

import importlib.util
import subprocess
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

TRACES = Path(__file__).resolve().parents[1] / "tests" / "norms" / "traces"
SHAPE = 3, 5, 8  # sequences, positions, features
STEPS = 3


@dataclass(frozen=True)
class Subject:
    """One norm of ours beside one file of its authors.

    `build` makes the authors' module from their file; `option` and `values` name ours. `names`
    maps our parameters to theirs. `factor` is theirs over ours where a constant is known to differ.
    """

    repository: str
    commit: str
    path: str
    build: Callable[[Any], nn.Module]
    option: str
    values: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    factor: float = 1.0
    tolerance: float = 1e-12


def _lancopku(eps: float = 1e-5, **changes: Any) -> Callable[[Any], nn.Module]:
    settings = {
        "lnv": "nowb",
        "sigma": 0.0,
        "adanorm_scale": 1.0,
        "nowb_scale": 1.0,
        "mean_detach": False,
        "std_detach": False,
    }
    arguments = types.SimpleNamespace(**{**settings, **changes})
    return lambda module: module.LayerNormImpl(
        arguments, SHAPE[2], eps=eps, elementwise_affine=False
    )


_ADANORM = {
    "repository": "lancopku+AdaNorm",
    "commit": "546faea0c3297061d743482d690ccd7d51f1ac38",
    "path": "machine translation/fairseq/modules/layer_norm.py",
}
_RMSNORM = {
    "repository": "bzhangGo+rmsnorm",
    "commit": "2e726f1a3f106bb719056422f4f9b6aca03d3ce6",
    "path": "rmsnorm_torch.py",
    "names": {"weight": "scale"},
}
_DERF = {"repository": "zlab-princeton+Derf", "commit": "8dd9ea3"}
_BOUNDED = {"weight": "weight", "bias": "bias", "alpha": "alpha", "shift": "shift"}
# Their standard deviation is the n - 1 one, ours the n one; eps, which stands elsewhere, is 0.
_CORRECTION = ((SHAPE[2] - 1) / SHAPE[2]) ** 0.5
_DETACHED = {"affine": False, "eps": 0.0}

SUBJECTS: Mapping[str, Subject] = {
    "ada": Subject(**_ADANORM, build=_lancopku(lnv="adanorm"), option="ada"),
    "ada_2": Subject(
        **_ADANORM,
        build=_lancopku(lnv="adanorm", adanorm_scale=2.0),
        option="ada",
        values={"scale": 2.0},
    ),
    **{
        f"ln_detach_{detach}": Subject(
            **_ADANORM,
            build=_lancopku(eps=0.0, mean_detach=detach != "std", std_detach=detach != "mean"),
            option="ln",
            values={**_DETACHED, "detach": detach},
            factor=_CORRECTION,
        )
        for detach in ("mean", "std", "both")
    },
    "rms": Subject(
        **_RMSNORM,
        build=lambda module: module.RMSNorm(SHAPE[2]),
        option="rms",
        values={"eps": 1e-8, "eps_inside": False},
    ),
    "prms": Subject(
        **_RMSNORM,
        build=lambda module: module.RMSNorm(SHAPE[2], p=0.25),
        option="prms",
        values={"share": 0.25},
    ),
    "scale": Subject(
        repository="tnq177+transformers_without_tears",
        commit="c2dfaaa93c2437a75f08b52de88b1132f78e7cad",
        path="layers.py",
        build=lambda module: module.ScaleNorm(SHAPE[2] ** 0.5),
        option="scale",
        names={"g": "scale"},
    ),
    "dyt": Subject(
        repository="jiachenzhu+DyT",
        commit="aab5dde0bc1bdd4410f687dad404c87b31808f90",
        path="dynamic_tanh.py",
        build=lambda module: module.DynamicTanh(SHAPE[2], channels_last=True),
        option="dyt",
        names={name: _BOUNDED[name] for name in ("weight", "bias", "alpha")},
    ),
    "derf": Subject(
        **_DERF,
        path="ViT/dynamic_erf.py",
        build=lambda module: module.Dynamic_erf(SHAPE[2], channels_last=True),
        option="derf",
        names=_BOUNDED,
    ),
    **{
        function: Subject(
            **_DERF,
            path=f"ViT/other_functions/{function}.py",
            build=lambda module, name=function: getattr(module, name.capitalize())(
                SHAPE[2], channels_last=True
            ),
            option="derf",
            values={"function": function},
            names=_BOUNDED,
        )
        for function in (
            *("arctan", "isru", "satursin", "expsign"),
            *("smoothsign", "relsign", "cubsign", "linear_clip"),
        )
    },
}


def inputs(step: int) -> tuple[Tensor, Tensor]:
    """Return the input of a step and the gradient of its output, float64 `[B, T, D]`."""
    random = np.random.RandomState(step)  # numpy promises that its numbers stay
    x = random.standard_normal(SHAPE) * (1 + np.arange(SHAPE[2]) / 4) + 0.5
    return torch.tensor(x), torch.tensor(random.standard_normal(SHAPE))


def set_values(module: nn.Module, names: Mapping[str, str]) -> dict[str, nn.Parameter]:
    """Give the parameters values that are neither 0 nor 1; return them by our names."""
    theirs = dict(module.named_parameters())
    found = {ours: theirs[name] for ours, name in names.items()}
    for number, (_, parameter) in enumerate(sorted(found.items())):
        values = torch.linspace(0.6 + 0.1 * number, 1.7, parameter.numel(), dtype=torch.float64)
        parameter.data = values.view_as(parameter)
    return found


def trace(
    module: nn.Module,
    names: Mapping[str, str],
    forward: Callable[[nn.Module, Tensor], Tensor] = lambda module, x: module(x),
) -> dict[str, np.ndarray]:
    """Take the steps; return `y`, `dx` and the gradients of the parameters, each by step."""
    module = module.double().train()
    parameters = set_values(module, names)
    found: dict[str, list[Tensor]] = {}
    for step in range(STEPS):
        x, grad = inputs(step)
        x.requires_grad_()
        module.zero_grad()
        y = forward(module, x * 1.0)
        y.backward(grad)
        figures = {"y": y, "dx": x.grad} | {f"d{n}": p.grad for n, p in parameters.items()}
        for name, value in figures.items():
            found.setdefault(name, []).append(value.detach().clone().flatten())
    return {name: torch.stack(values).numpy() for name, values in found.items()}


def _their_module(subject: Subject, folder: Path) -> Any:
    """Import the authors' file at the commit, with empty stand-ins for what it only imports."""
    for name in ("timm", "timm.layers"):
        sys.modules.setdefault(name, types.ModuleType(name))
    vars(sys.modules["timm.layers"])["LayerNorm2d"] = nn.LayerNorm
    place = ["git", "-C", str(folder / subject.repository), "show"]
    done = subprocess.run(
        [*place, f"{subject.commit}:{subject.path}"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{subject.repository} {subject.commit} {subject.path}: {done.stderr.strip()}")
    with TemporaryDirectory() as temporary:
        file = Path(temporary) / "theirs.py"
        file.write_text(done.stdout)
        spec = importlib.util.spec_from_file_location("theirs", file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


def main() -> None:
    """Write the traces of the subjects named, or of all."""
    if len(sys.argv) < 2 or not Path(sys.argv[1]).is_dir():
        sys.exit("usage: python scripts/parity.py FOLDER [NAME ...]; FOLDER holds the repositories")
    for name in sys.argv[2:] or SUBJECTS:
        subject = SUBJECTS[name]
        module = subject.build(_their_module(subject, Path(sys.argv[1])))
        np.savez_compressed(TRACES / f"{name}.npz", **trace(module, subject.names))
        print(f"{name}: {subject.repository} {subject.commit[:7]} {subject.path}")


if __name__ == "__main__":
    main()
