"""Do padding, the other rows, later tokens or the training mode move a model's output?"""

from normlab.inspect.foreign.subject import HARM, LEAK, Foreign, Moved
from normlab.inspect.model import percent
from normlab.inspect.question import Finding, Verdict, question


def _verdict(value: float) -> Verdict:
    return "fine" if value <= LEAK else "look" if value <= HARM else "broken"


def _size(value: float) -> str:
    """Format a movement: in percent if it can be seen, otherwise as a power of ten."""
    return percent(value) if value >= 1e-4 else f"{value:.0e}" if value else "0"


def _finding(about: Foreign, found: dict[str, Moved], worst: str, how: str) -> Finding:
    """Return the finding of a question about leaks, decided by the comparison named `worst`."""
    most = found[worst]
    verdict = _verdict(most.wide)
    if verdict == "fine":
        narrow = max(found.values(), key=lambda each: each.narrow)
        text = f"no leak ({_size(most.wide)} in float64, limit {LEAK:.0e})"
        text += f"; rounding in {about.dtype} moves it by {_size(narrow.narrow)}"
        text += f" and the argmax at {percent(narrow.argmax)} of positions" * bool(narrow.argmax)
    else:
        text = f"moves by {_size(most.wide)} in float64 (limit {_size(HARM)}), {worst}"
    values = {name: vars(each) for name, each in found.items()}
    threshold = HARM if verdict == "broken" else LEAK
    return Finding(f"{text}. {how}", values, verdict=verdict, value=most.wide, threshold=threshold)


@question("padding", of="module")
def padding(about: Foreign) -> Finding:
    """Does padding move the output at real tokens?

    Let y be the output for a row alone, y' its part at the same positions when the row is padded by
    half its length (at least 8), on the mask's side. The value is RMS(y' - y) / RMS(y) in float64.
    """
    example = about.example
    if not example.length:
        return Finding.none("the inputs have no axis of tokens, so they are never padded")
    if not example.kind:
        return Finding.none("no input marks padding; name one with mask=")
    names = ("padded", "padded by other values")
    found = {name: about.moved(name) for name in names}
    worst = max(names, key=lambda name: found[name].wide)
    how = f"One row of {example.length} positions, alone and padded by {about.pads}."
    return _finding(about, found, worst, how)


@question("batch_mates", of="module")
def batch_mates(about: Foreign) -> Finding:
    """Do the other rows of the batch move a row's output?

    Let y be the output for a row in its batch; y' with other values in all other rows, and for the
    row alone. The value is the larger RMS(y' - y) / RMS(y) in float64.
    """
    found = {"other rows": about.moved("other rows", "batch"), "alone": about.moved("batch")}
    worst = max(found, key=lambda name: found[name].wide)
    return _finding(about, found, worst, f"One row of {about.example.size}.")
