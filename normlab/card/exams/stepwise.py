"""Does a model that is given its sentence token by token compute what it does on the whole?

Claims 17 and 41.
"""

from normlab.card.finding import Finding
from normlab.card.runs import diverged, trained
from normlab.card.subject import Examined
from normlab.health import stepwise


def examine(examined: Examined) -> Finding:
    """Compare both ways on the trained translation model."""
    subject = trained(examined)
    if subject is None:
        return diverged(stepwise.QUESTION)
    found = stepwise.examine(subject)
    apart = found.figures["eval"]["difference"]["mean"] if not found.why_not else None
    return Finding.of_sheet(found, {"stepwise": apart})
