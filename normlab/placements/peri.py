"""Peri-LN: a norm on either side of every sub-layer, and on the embedded tokens.

    tokens --> embedding --> dropout --> norm --> layers --> norm

        x ---+--> norm --> sub-layer --> norm --> dropout --> (+) --> y
             |                                                 |
             +-------------------------------------------------+

    y = x + norm(f(norm(x)))

    closing norm: one.
    at initialization: each sub-layer adds one norm's output to the stream, whose variance grows
    linearly.

Source: Kim et al. 2025 ("Peri-LN: Revisiting Normalization Layer in the Transformer Architecture").
The authors have published no code. Some drawings put the second norm after the addition: that is
another wiring.
"""

from normlab.norms.base import Norm
from normlab.placements.base import Norms, StackName
from normlab.placements.sandwich import Sandwich


class Peri(Sandwich):
    """Peri-LN placement: the sandwich's residuals, and a norm where the stream begins."""

    def opening(self, norms: Norms, dim: int, stack: StackName) -> Norm:
        return norms.at(f"{stack}.opening", dim)
