"""Decides claim 29: what an outlier of 999 does to the softmax, with and without layer norm."""

from normlab.checks._pieces import new, piece
from normlab.claims.evidence import Evidence
from normlab.health.sentence import through

_WIDTH = 4
_DEAD = 1e-6
_ALIVE = 0.01


def softmax() -> list[Evidence]:
    """Let document 002's three tokens attend to themselves."""
    bare, ln = (through(new(name, _WIDTH)) for name in ("none", "ln"))
    return [
        piece(
            "without a norm the token of the 999 saturates the softmax, whose gradient is 0",
            f"largest logit {bare['largest_logit']:,.0f}, slope {bare['slope'][0]:.3g}",
            holds=bare["slope"][0] < _DEAD,
            logit=bare["largest_logit"],
            slope=bare["slope"][0],
        ),
        piece(
            "ln brings the 999 down, and the softmax lives",
            f"999 comes out as {ln['values'][0][2]:.2f} (not in -1 to 1), largest logit "
            f"{ln['largest_logit']:.2f}, slope {ln['slope'][0]:.3f}",
            holds=ln["slope"][0] > _ALIVE,
            logit=ln["largest_logit"],
            slope=ln["slope"][0],
            value=ln["values"][0][2],
        ),
    ]
