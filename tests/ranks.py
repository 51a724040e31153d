"""Run a function in several gloo processes on this machine."""

import io
import os
import socket
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.multiprocessing as multiprocessing

TIMEOUT_SECONDS = 120


def run_ranks(function: Callable[..., Any], size: int, *arguments: Any) -> list[Any]:
    """Call a module-level `function(*arguments)` in `size` ranks; return results in rank order.

    Raises the first error of a rank, with its trace.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [
        context.Process(target=_rank, args=(queue, function, rank, size, port, arguments))
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    results: dict[int, Any] = {}
    try:
        for _ in processes:
            rank, error, result = queue.get(timeout=TIMEOUT_SECONDS)
            if error:
                raise AssertionError(f"rank {rank}: {error}")
            results[rank] = torch.load(io.BytesIO(result), weights_only=False)
    finally:
        for process in processes:
            process.join(timeout=5)
            process.kill()
    return [results[rank] for rank in range(size)]


def _rank(queue, function, rank, size, port, arguments):
    from normlab.norms import ranks

    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    try:
        ranks.initialize()
        # As bytes: a tensor in a queue is a handle that dies with the process that sent it.
        result = io.BytesIO()
        torch.save(function(*arguments), result)
        queue.put((rank, None, result.getvalue()))
        ranks.shutdown()
    except BaseException:
        queue.put((rank, traceback.format_exc(), None))
