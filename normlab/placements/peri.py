"""Peri-LN: a norm on either side of every sub-layer, and on the embedded tokens.

    tokens --> embedding --> dropout --> norm --> layers --> norm

        x ---+--> norm --> sub-layer --> norm --> dropout --> (+) --> y
             |                                                 |
             +-------------------------------------------------+

    y = x + norm(f(norm(x)))

    closing norm: one.
    at initialization: the stream's variance grows by one norm's output a sub-layer, linearly.

Source: Kim et al. 2025 ("Peri-LN: Revisiting Normalization Layer in the Transformer Architecture").
No code of the authors is public. Some drawings put the second norm after the addition: that is
another wiring.
"""

from normlab.norms.base import Norm
from normlab.placements.sandwich import Sandwich


class Peri(Sandwich):
    """Peri-LN placement: the sandwich's residuals, and a norm where the stream begins."""

    def opening(self, dim: int) -> Norm:
        """Build the norm of the embedded tokens."""
        return self.norm(dim)
