"""Trainers outside a run, in this process or on several ranks."""

import io
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from normlab.config.compose import compose
from normlab.config.run_config import to_dict
from normlab.distributed import process_group
from normlab.training import build
from normlab.training.build import build_model, build_task, calibrate_model
from normlab.training.checkpoint import Checkpoints
from normlab.training.runtime import Runtime
from normlab.training.trainer import Trainer
from tests.tiny_runs import fork_server, tiny

# One random batch of 8 sentences equals the next two batches of 4. Without dropout and in
# float64, only the order of sums differs.
EXACT = ("precision=fp64", "model.dropout=0.0", "batching=random", "validate.every=100")


def build_trainer(corpus: Path, folder: Path, *overrides: str) -> Trainer:
    """Return a trainer that is ready for its first step."""
    return trainer_of(to_dict(compose(tiny(corpus, folder, *overrides))), folder)


def trainer_of(config: Mapping[str, Any], folder: Path) -> Trainer:
    """Return a trainer for a plain config, with its checkpoints in `folder`."""
    runtime = Runtime.start(device="cpu", precision=config["precision"], threads=1)
    torch.manual_seed(config["seed"] + runtime.world.rank)
    task = build_task(config)
    model = build_model(config, task).to(runtime.parameter_dtype)
    calibrate_model(config, model, task, runtime)
    validate = {**config["validate"], "best": False, "test": "last", "average": 0}
    observe = {**config["observe"], "probe": {}, "targets": {}}
    checkpoints = Checkpoints(folder / "checkpoints", writes=process_group.is_main())
    config = {**config, "validate": validate, "observe": observe}
    trainer = build.build_trainer(config, task, model, runtime, checkpoints)
    trainer.start()
    return trainer


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return a copy of the parameters and buffers."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def largest_difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
    """Return the largest difference between two states of a model."""
    assert a.keys() == b.keys()
    return max(float(abs(a[name] - b[name]).max()) for name in a)


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def enter_rank(rank: int, size: int, port: int) -> None:
    """Set the environment variables that `torchrun` sets."""
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def on_ranks(size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Call a module-level function in `size` gloo ranks, and return what each returned."""
    context, place = fork_server(), (size, free_port())
    pipes = [context.Pipe(duplex=False) for _ in range(size)]
    processes = [
        context.Process(target=_on_rank, args=(rank, place, pipe[1], function, arguments))
        for rank, pipe in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    try:
        results = [_received(reader) for reader, _ in pipes]
    finally:
        for process in processes:
            process.join(5)
            process.kill()
    return results


def _received(reader: Any) -> Any:
    assert reader.poll(180), "a rank does not answer"
    if isinstance(result := reader.recv(), BaseException):
        raise result
    return torch.load(io.BytesIO(result), weights_only=False)


def _on_rank(
    rank: int,
    place: tuple[int, int],
    pipe: Any,
    function: Callable[..., Any],
    arguments: Sequence[Any],
) -> None:
    enter_rank(rank, *place)
    try:
        process_group.initialize()
        # As bytes: a tensor in a pipe is a handle that is invalid once its process has ended.
        torch.save(function(*arguments), result := io.BytesIO())
        pipe.send(result.getvalue())
    except BaseException as error:
        pipe.send(error)
        raise
    finally:
        process_group.shutdown()
