"""The reason why a part is open, in English and in Chinese (text in `templates/reasons.yaml`)."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import yaml
from msgspec import Struct, field


class Reason(Struct, frozen=True, omit_defaults=True):
    """Why a part is open: the key of a sentence in the template, and the values in the sentence.

    With `final`, the text adds that more seeds cannot decide the part.
    """

    name: str
    values: Mapping[str, str] = field(default_factory=dict)
    final: bool = False

    def for_good(self) -> "Reason":
        """Return the reason with the addition that more seeds cannot decide the part."""
        return Reason(self.name, self.values, final=True)

    def text(self, language: str) -> str:
        """Return the reason in a language, `en` or `zh`."""
        names = [self.name, *(["final"] if self.final else [])]
        return "".join(_words()[name][language].format(**self.values) for name in names)

    def __str__(self) -> str:
        return self.text("en")


@cache
def _words() -> Mapping[str, Mapping[str, str]]:
    path = files("normlab.claims") / "templates" / "reasons.yaml"
    return yaml.safe_load(path.read_text("utf-8"))
