"""The checkpoints of a run: the last state, the best weights, and the weights to average.

    checkpoints/last.pt           everything needed to resume a run bit for bit
    checkpoints/best-<score>.pt   the weights with the best validation score, and their step
    checkpoints/step-00000500.pt  the weights at one of the last k validations, for averaging

Each file is written under a temporary name and then renamed. It is loaded with `weights_only=True`,
because a checkpoint holds tensors and plain values, but no code.
"""

import zipfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from normlab.config.registry import START_FILE, sha256
from normlab.distributed import process_group
from normlab.errors import UserError
from normlab.records.code import Code
from normlab.records.files import atomic_write, check_is_file, remove_leftovers
from normlab.training.data_changes import differing_checksums

FORMAT = "normlab.checkpoint/1"
Weights = Mapping[str, Tensor]
_COUNTERS = "_extra_state"  # torch's key for a module's extra state
# A run that has a record is not trained again, even if its checkpoints are gone.
_AGAIN = "remove the run's folder, then train the run again"


class Checkpoints:
    """The checkpoint folder of a run. Only rank 0 writes to it."""

    def __init__(self, folder: Path, *, writes: bool = True):
        self.folder = folder
        self.writes = writes
        if writes:
            remove_leftovers(folder)

    @property
    def last(self) -> Path:
        return self.folder / "last.pt"

    def best(self, score: str) -> Path:
        """Return the path of the weights that are best by a score, such as `loss`."""
        return self.folder / f"best-{score.replace('/', '_')}.pt"

    def save(self, path: Path, content: Mapping[str, Any]) -> None:
        """Write a checkpoint completely or not at all.

        If writing fails, the OSError contains the path.
        """
        if self.writes:
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(path, "wb") as file:
                try:
                    torch.save({"format": FORMAT, **content}, file)
                except RuntimeError as error:
                    # On a full disk, closing the archive also fails, which hides the OSError.
                    if isinstance(error.__context__, OSError):
                        raise error.__context__ from None
                    raise

    def save_best(self, score: str, step: int, weights: Weights) -> None:
        """Save the weights of `step`, which are the best so far by a score."""
        self.save(self.best(score), {"model": weights, "step": step})

    def keep_for_average(self, step: int, weights: Weights, count: int) -> None:
        """Save the weights of a validation, and delete all but the last `count` of them."""
        if self.writes and count:
            self.save(self.folder / f"step-{step:08d}.pt", {"model": dict(weights)})
            for path in self.weights_up_to(step)[:-count]:
                path.unlink(missing_ok=True)

    def weights_up_to(self, step: int) -> list[Path]:
        """Return the paths of the weights kept for averaging at validations up to `step`."""
        latest = self.folder / f"step-{step:08d}.pt"
        return [path for path in sorted(self.folder.glob("step-*.pt")) if path <= latest]

    def average(self, step: int, count: int) -> dict[str, Tensor]:
        """Return the mean of the last `count` kept weights up to `step`, including statistics.

        Averaged running statistics do not match averaged weights, so recalibrate them before use.
        Raises UserError if no weights were kept.
        """
        paths = self.weights_up_to(step)[-count:]
        if not paths:
            raise UserError(f"{self.folder} has no weights to average")
        return average_weights(weights_of(load_checkpoint(path), path) for path in paths)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint onto the CPU, or raise UserError if it is missing or damaged."""
    try:
        check_is_file(path)
        with zipfile.ZipFile(path) as archive:
            if (part := archive.testzip()) is not None:  # torch does not verify checksums
                raise zipfile.BadZipFile(f"wrong checksum of {part}")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(
            f"{path} does not exist; train the run (if it has ended, remove its folder first)"
        ) from None
    except PermissionError:
        raise
    except Exception as error:  # damaged bytes can make the reader fail in any way
        raise UserError(f"{path} is a damaged checkpoint ({_line(error)}); {_AGAIN}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UserError(f"{path} is not a checkpoint in the format {FORMAT}; {_AGAIN}")
    return content


@contextmanager
def reading(path: Path) -> Generator[None]:
    """Turn errors caused by missing or mismatched parts of a checkpoint into a UserError."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, RuntimeError) as error:
        raise UserError(
            f"{path} is damaged or from another model ({_line(error)}); {_AGAIN}"
        ) from error


def _line(error: Exception) -> str:
    problem = f"no {error}" if isinstance(error, KeyError) else str(error).strip()
    return f"{(problem or type(error).__name__).splitlines()[0]:.200}"


def weights_of(content: Mapping[str, Any], path: Path) -> dict[str, Tensor]:
    """Return the weights in a checkpoint, or raise UserError if it has none."""
    weights = content.get("model")
    if not isinstance(weights, dict) or not all(map(torch.is_tensor, weights.values())):
        raise UserError(
            f"{path} is a damaged checkpoint (it has no weights under `model`); {_AGAIN}"
        )
    return weights


def codes_of(content: Mapping[str, Any]) -> list[Code]:
    """Return the versions of the code that trained a checkpoint, in order."""
    return [Code(**code) for code in content["codes"]]


def put_weights(model: nn.Module, weights: Weights, path: Path) -> None:
    """Load weights read from `path` into a model for evaluation.

    Raises UserError if a weight is missing, has a different shape or type, or is not finite.
    """
    state = model.state_dict()
    if names := sorted(state.keys() ^ weights.keys()):
        missing = "lacks" if names[0] in state else "has"
        raise UserError(f"{path} is from another model: it {missing} {names[0]}")
    for name, value in weights.items():
        if not _fits(value, state[name]):
            raise UserError(
                f"{path} is from another model: {name} is {value.dtype} {tuple(value.shape)}, and "
                f"the config's model has {state[name].dtype} {tuple(state[name].shape)}"
            )
        if value.untyped_storage().nbytes() < value.nbytes:
            raise UserError(
                f"{path} is damaged: {name} has fewer values than its shape needs; {_AGAIN}"
            )
        if not value.isfinite().all():
            raise UserError(
                f"{path}: {name} has values that are not finite (NaN or infinity), so the run has "
                "diverged, and there is nothing to evaluate"
            )
    model.load_state_dict(weights)


def _fits(value: Tensor | None, current: Tensor) -> bool:
    if value is None or value.shape != current.shape:
        return False
    return value.is_floating_point() == current.is_floating_point()


def average_weights(states: Iterable[Weights]) -> dict[str, Tensor]:
    """Return the mean of several state dicts, computed in float64.

    Integers are taken from the last state dict.
    """
    sums: dict[str, Tensor] = {}
    last: Weights = {}
    count = 0
    for last in states:
        count += 1
        for name, value in last.items():
            if value.is_floating_point():
                sums[name] = sums[name] + value.double() if name in sums else value.double()
    return {
        name: (sums[name] / count).to(value.dtype) if name in sums else value
        for name, value in last.items()
    }


@torch.no_grad()
def start_from(
    model: nn.Module, node: Mapping[str, Any], stamp: Mapping[str, Any]
) -> tuple[str, list[Code]]:
    """Copy another run's weights into a model where names and shapes match (`start_from`).

    For example, a model trained with layer norm can continue with batch norm: gains, shifts and
    linear layers are copied, and running statistics and the norms' schedules start afresh. Buffers
    that a module lists in `belongs_to_run`, such as the state of a noise generator, also do.

    `stamp` is the plain data that the run writes into its checkpoints. Returns a line that says how
    much was copied and whether it was trained on different data, and the versions of the code that
    trained the weights. Raises UserError if the file is missing, damaged or has changed since the
    run was configured, if its vocabulary differs, or if no tensor matches.
    """
    path = Path(node["run_dir"]) / START_FILE
    content = load_checkpoint(path)
    weights = weights_of(content, path)
    if sha256(path) != node["sha256"]:
        raise UserError(f"{path} has changed since this run was configured; start the run again")
    with reading(path):
        if content["vocabulary"] != stamp["vocabulary"]:
            raise UserError(
                f"start_from={node['run_dir']} has a different vocabulary, so the same ids stand "
                "for different words (or classes); start from a run on the same training data"
            )
        changed = differing_checksums(content["checksums"], stamp["checksums"])
    state = model.state_dict()
    taken = [
        name
        for name, value in state.items()
        if not _belongs_to_run(model, name) and _fits(weights.get(name), value)
    ]
    if not taken:
        raise UserError(
            f"{path} has no weights that match this model by name and shape; use the same task "
            "and model"
        )
    for name in taken:
        state[name].copy_(weights[name])
    other = f"; that run was trained on different data: {', '.join(changed)}" if changed else ""
    copied = f"{len(taken)} of {len(state)} tensors are copied from {path}"
    note = f"{copied}, and the others are initialized{other}"
    with reading(path):
        return note, codes_of(content)


def _belongs_to_run(model: nn.Module, name: str) -> bool:
    """Return whether an entry of the model's state dict is not a weight but the state of a run."""
    path, _, entry = name.rpartition(".")
    module = model.get_submodule(path)
    return entry == _COUNTERS or entry in getattr(module, "belongs_to_run", ())


def check_kept(checkpoints: Checkpoints, best_by: Sequence[str], step: int, average: int) -> None:
    """Raise UserError if weights that the test needs are missing when resuming after `step`."""
    missing = [path for path in map(checkpoints.best, best_by) if not path.exists()]
    if average and not checkpoints.weights_up_to(step):
        missing.append(checkpoints.folder / "step-*.pt")
    if missing:
        raise UserError(
            f"{missing[0]} is missing, but the test at the end of this run needs it; restore it, "
            f"or remove {checkpoints.last} to train the run again from step 1"
        )


def random_state(device: torch.device) -> dict[str, Tensor]:
    """Return the state of this process's random number generators."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_random_state(state: Mapping[str, Tensor], device: torch.device) -> None:
    """Restore the state of this process's random number generators."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)


def restore_rank(random: Sequence[Mapping[str, Tensor]], device: torch.device) -> None:
    """Restore this process's random state.

    Raise UserError if a different number of processes wrote the checkpoint.
    """
    count, world = len(random), process_group.world()
    if count != world.size:
        raise UserError(
            f"the checkpoint was written by {count} processes, but this run has {world.size}; "
            f"start it with {count}"
        )
    restore_random_state(random[world.rank], device)
