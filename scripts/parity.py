"""Run the authors' norms and store their outputs: `python -m scripts.parity FOLDER [NAME ...]`.

FOLDER holds the repositories as `owner+name`, each a clone, bare or not; their code is never part
of this project. For each subject, `tests/norms/traces/NAME.npz` is written: some training steps in
float64 on inputs that numpy draws from a seed, with the outputs and gradients of every step, the
norm's statistics and any penalty on the loss. `tests/norms/test_against_authors.py` compares our
norms with these traces.
"""

import importlib.util
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch
from torch import Tensor, nn

from scripts.parity_subjects import LENGTHS, SHAPE, SUBJECTS, Driver, Subject

TRACES = Path(__file__).resolve().parents[1] / "tests" / "norms" / "traces"


def inputs(number: int) -> tuple[Tensor, Tensor]:
    """Return the `number`-th input and the gradient of its output, float64 `[B, T, D]`."""
    random = np.random.RandomState(number)  # numpy guarantees the same numbers in every version
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
    subject: Subject,
    driver: Driver,
    names: Mapping[str, str],
    tables: Mapping[str, str],
) -> dict[str, np.ndarray]:
    """Take the steps; return `y`, `dx`, the parameters' gradients, the tables and the penalty.

    Each has one row per step. If there are tables, `eval` is the output in evaluation for one more
    input. At padding the gradient of the output is 0, and neither output nor gradient is stored.
    """
    module = module.double().train()
    parameters = set_values(module, names)
    lengths = torch.tensor(LENGTHS if subject.padded else (SHAPE[1],) * SHAPE[0])
    valid = torch.arange(SHAPE[1])[None] < lengths[:, None]
    found: dict[str, list[Tensor]] = {}
    for number, step in enumerate(subject.steps):
        x, grad = inputs(number)
        x = (x * 10 if step == subject.outlier else x).requires_grad_()
        module.zero_grad()
        driver.begin(module, step)
        y = driver.forward(module, x * 1.0, valid)
        figures = {"y": y[valid]}
        loss = (y * grad)[valid].sum()
        penalty = driver.penalty(module)
        if penalty is not None:
            figures["penalty"] = penalty
            loss = loss + penalty
        loss.backward()
        assert x.grad is not None
        figures |= {"dx": x.grad[valid]} | {f"d{n}": _grad(p) for n, p in parameters.items()}
        figures |= {ours: module.get_buffer(theirs) for ours, theirs in tables.items()}
        for name, value in figures.items():
            found.setdefault(name, []).append(value.detach().clone().flatten())
    if tables:
        x, _ = inputs(len(subject.steps))
        found["eval"] = [driver.forward(module.eval(), x, valid)[valid].detach().flatten()]
    return {name: torch.stack(values).numpy() for name, values in found.items()}


def _grad(parameter: nn.Parameter) -> Tensor:
    """Return the gradient of a parameter; 0 if a step did not use it."""
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


class _StandIn(MagicMock):
    """Stands in for anything in a missing module; as a decorator or base class it does nothing."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], types.FunctionType):
            return args[0]
        return super().__call__(*args, **kwargs)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return ()


@contextmanager
def _their_module(subject: Subject, folder: Path) -> Iterator[Any]:
    """Import the authors' file at the commit, with stand-ins for unused imports."""
    repository = folder / subject.repository
    if not repository.is_dir():
        sys.exit(
            f"{repository}: no such folder; clone https://github.com/"
            f"{subject.repository.replace('+', '/')} there"
        )
    bare = repository / "repo"  # of a mirror
    place = ["git", "-C", str(bare if bare.is_dir() else repository), "show"]
    done = subprocess.run(
        [*place, f"{subject.commit}:{subject.path}"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{subject.repository} {subject.commit} {subject.path}: {done.stderr.strip()}")
    absent = [f"theirs{name}" if name[0] == "." else name for name in subject.absent]
    sys.modules.update({name: _StandIn(name=name) for name in absent})
    with TemporaryDirectory() as temporary:
        file = Path(temporary) / "theirs.py"
        file.write_text(done.stdout)
        spec = importlib.util.spec_from_file_location("theirs.file", file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["theirs.file"] = module  # where a dataclass looks up its annotations
        spec.loader.exec_module(module)
        yield module
    for name in absent:
        del sys.modules[name]


def main() -> None:
    """Write the traces of the named subjects, or of all if none is named."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m scripts.parity FOLDER [NAME ...]; FOLDER holds the repositories")
    if not Path(sys.argv[1]).is_dir():
        sys.exit(
            f"{sys.argv[1]}: no such folder; give the one that holds the authors' repositories"
        )
    if unknown := set(sys.argv[2:]) - set(SUBJECTS):
        sys.exit(f"no subject {', '.join(sorted(unknown))}: there are {', '.join(SUBJECTS)}")
    torch.set_default_dtype(torch.float64)  # of constants that the authors' code creates
    for name in sys.argv[2:] or SUBJECTS:
        subject = SUBJECTS[name]
        with _their_module(subject, Path(sys.argv[1])) as theirs:
            module = subject.build(theirs)
        found = trace(module, subject, subject.driver, subject.names, subject.tables)
        np.savez_compressed(TRACES / f"{name}.npz", **found)
        print(f"{name}: {subject.repository} {subject.commit[:7]} {subject.path}")


if __name__ == "__main__":
    main()
