"""How well does a short run on pictures go, on handwritten digits?

A small residual network, the norm behind each of its convolutions: it has no placement, no sites of
text and no padding. A norm that cannot stand there does not take part.
"""

from normlab.build import build_model, build_task
from normlab.card.finding import Finding
from normlab.card.runs import short_runs
from normlab.card.subject import Examined
from normlab.config import to_dict

QUESTION = "How well does a residual network learn pictures in a short run (task=digits)?"
TITLES = {"test/loss": "digits loss", "test/accuracy": "digits acc"}
_PICTURES = 8


def examine(examined: Examined) -> Finding:
    """Train a convolutional network, unless the norm cannot stand in it."""
    refused = _refusal(examined)
    if refused is not None:
        return Finding.none(QUESTION, refused)
    return short_runs(examined, "pictures", QUESTION, TITLES)


def _refusal(examined: Examined) -> str | None:
    """Return why no network with the norm can be built and given pictures; None where one can."""
    config = to_dict(examined.config("pictures"))
    task = build_task(config)
    batch = task.batch("train", range(_PICTURES))
    try:
        task.losses(build_model(config, task), batch)
    except ValueError as error:
        return _line(error)
    except Exception as error:  # a norm's own code may raise anything
        return f"on pictures the norm raises {type(error).__name__}: {_line(error)}"
    return None


def _line(error: Exception) -> str:
    return (str(error).splitlines() or ["it does not say why"])[0]
