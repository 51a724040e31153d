"""What runs or timings found on a part of the ledger, as a sentence in either language.

The ledger has values; the sentences are `templates/finding.en.txt` and `finding.zh.txt`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from normlab.articles.language import Locale, ScoreName
from normlab.claims.reason import Reason
from normlab.claims.side import SideValue, sides_text
from normlab.templates import environment


class PartFinding(NamedTuple):
    """What runs or timings found on a part.

    `number` has the value and the ends of its interval as text, rounded to meaningful digits;
    `unit` says what the value is, such as a difference of the `score`. Between the `limits` it
    shows no difference. `sides` has the values behind it, or, if seeds were `counted`, how many
    train.
    """

    score: str
    unit: str
    number: Sequence[str]
    sides: Sequence[SideValue]
    counted: bool
    limits: str
    inside: bool
    reason: Reason | None

    @classmethod
    def of(cls, part: Mapping[str, Any]) -> "PartFinding | None":
        """Return what was found on a part of the ledger; None if no run or timing measured it."""
        if part["verdict"] == "not measured" or not {"scores", "limits"} & part.keys():
            return None
        unit, number = part["unit"], part.get("number", ())
        return cls(
            score=next(iter(part.get("scores", ())), ""),
            unit=unit,
            number=["0"] * len(number) if _all_zero(number) else number,
            sides=[_side(side) for side in part.get("sides", ())],
            counted=part.get("counted", False),
            limits=_limits(part["limits"], unit) if "limits" in part and "low" in part else "",
            inside=part["verdict"] == "no difference",
            reason=Reason(**part["reason"]) if "reason" in part else None,
        )

    def text(self, language: Locale) -> str:
        """Return it in one line."""
        values = self._asdict() | {
            "score": language.score_name(self.score) if self.score else ScoreName(""),
            "sides": sides_text(self.sides, chinese=language.code == "zh"),
            "reason": self.reason.text(language.code) if self.reason else "",
        }
        template = environment("normlab.articles").get_template(f"finding.{language.code}.txt")
        return template.render(values)


def _side(side: Mapping[str, Any]) -> SideValue:
    place = tuple(side["place"]) if "place" in side else None
    return SideValue(tuple(side["name"]), side["value"], side.get("least"), place)


def _all_zero(number: Sequence[str]) -> bool:
    """Return whether a number and the ends of its interval are zero once they are rounded."""
    return all(float(each.rstrip("%")) == 0 for each in number)


def _limits(limits: Sequence[float], unit: str) -> str:
    """Return the limits such as `±0.5`, or `0.8–1.25` for a factor."""
    low, high = limits
    shown = "{:.0%}".format if unit == "time saved" else "{:g}".format
    return f"\u00b1{shown(high)}" if low == -high else f"{shown(low)}\u2013{shown(high)}"
