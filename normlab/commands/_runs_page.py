"""The page of runs that `normlab report RUN` writes."""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from normlab.commands._runs import none_below
from normlab.commands._terminal import complain
from normlab.commands._texts import TextsAtHand
from normlab.records.atomic import atomic_write
from normlab.reports.html.runs import runs_page
from normlab.reports.manifest import PAGE
from normlab.reports.runs import arranged
from normlab.reports.watched import Watched

EVERY = 5.0  # seconds between two pages of `--watch`


def watch_page(
    places: Sequence[Path], out: Path, *, baseline: str | None, scores: Sequence[str]
) -> int:
    """Rewrite the page while runs train, until Ctrl-C; the browser reloads it."""
    with suppress(KeyboardInterrupt):
        while True:
            write_page(places, out, baseline=baseline, scores=scores)
            time.sleep(EVERY)
    return 0


def write_page(
    places: Sequence[Path], out: Path, *, baseline: str | None, scores: Sequence[str]
) -> int:
    """Write the page into a folder and print its path; 1 where a run cannot be read, which is said.

    A run that has not ended is said too, and is no error. Raises ValueError for places without a
    run, and for a baseline or score that no run has.
    """
    watched = Watched(places)
    watched.look()
    path = out / PAGE
    found = watched.runs(lambda record: Path(os.path.relpath(record, out)).as_posix())
    for problem in watched.problems:
        complain(problem)
    if not found:
        raise ValueError(none_below(places, " that can be read"))
    for each in found:
        if each.run.record is None:
            state = "has not ended" if each.now is None else "goes on"
            complain(f"{each.name}: {state}; its curves are shown, its scores are not")
    runs = arranged(found, baseline=baseline, scores=scores)
    heading = ", ".join(str(place) for place in places)
    text = runs_page(runs, heading, problems=watched.problems, text_of=TextsAtHand())
    out.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(text)
    print(path)
    return 1 if watched.problems else 0
