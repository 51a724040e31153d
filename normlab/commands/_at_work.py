"""A bar on the terminal while a command is at work: what it does, how far it is, since when."""

import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def at_work(doing: str, *, done: int = 0, total: int | None = None) -> Generator[None]:
    """Within the block, show a bar on the standard error; in a pipe nothing.

    It is there before what the block imports, and gone at its end. Without a `total` the stages
    that are said within the block move it.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from normlab.progress import Stage, heard_by

    progress = Progress(
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
        transient=True,
        refresh_per_second=4,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    task = progress.add_task(doing, completed=done, total=total)

    def listen(stage: Stage) -> None:
        if total is None:
            progress.update(task, description=str(stage), completed=stage.done, total=stage.total)

    with progress, heard_by(listen):
        yield
