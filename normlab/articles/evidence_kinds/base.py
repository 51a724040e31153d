"""The base class of evidence: what tables, the interactive page and verdicts need from it."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

from msgspec import structs

from normlab.articles.explanation import Explanation
from normlab.articles.results import Results
from normlab.claims.in_words.language import Locale, Words
from normlab.claims.verdict import Verdict
from normlab.config.conversion import OneOfKinds, WrongField


class StudyRows(NamedTuple):
    """Rows of a study at a point of its grid. The point is "" if the study has no grid."""

    study: str
    rows: tuple[str, ...]
    point: str


class CellText(NamedTuple):
    """What a table shows of evidence in one language.

    `place` says where to find more, such as part `2.1`. It is in brackets in all formats but LaTeX.
    `note` is the full text for the notes below the table, or "" if the cell's text is complete.
    """

    text: str
    place: str = ""
    note: str = ""

    @property
    def line(self) -> str:
        return f"{self.text} [{self.place}]" if self.place else self.text


class Evidence(OneOfKinds):
    """Evidence on a sentence or a cell.

    `about` has the words that it is about, or is None if it is about the whole text. Methods that
    take `results` raise UserError if the evidence does not exist.
    """

    KINDS: ClassVar[dict[str, type["Evidence"]]] = {}
    """The kinds of evidence, keyed by the key that marks them in a file. `register` adds a kind."""
    about: Words | None

    @classmethod
    def kind_of(cls, node: Any) -> type["Evidence"]:
        keys = [key for key in cls.KINDS if isinstance(node, dict) and key in node]
        if len(keys) != 1:
            known = ", ".join(cls.KINDS)
            raise WrongField("", f"needs one of {known}; found {node!r:.60}")
        return cls.KINDS[keys[0]]

    def cell_text(self, results: Results, language: Locale) -> CellText:
        """Return what a cell shows of the evidence, without the words that it is about."""
        raise NotImplementedError

    def explanation(self, results: Results) -> Explanation:
        """Return the explanation that opens below a sentence on the interactive page."""
        raise NotImplementedError

    def verdict(self, results: Results) -> Verdict | None:
        """Return the verdict of the evidence, or None for scores and remarks."""
        return None

    @property
    def about_everything(self) -> "Evidence":
        """The same evidence, but about the whole sentence or cell."""
        return structs.replace(cast("Any", self), about=None)

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of claims that the evidence refers to, such as `2.worse`."""
        return ()

    @property
    def study_rows(self) -> StudyRows | None:
        """The rows whose scores the evidence shows, or None if it shows no scores."""
        return None

    def cell(self, results: Results, language: Locale) -> CellText:
        """Return what a cell shows of the evidence, preceded by the words that it is about."""
        cell = self.cell_text(results, language)
        if self.about is None:
            return cell
        text = language.phrasing.about.format(self.about.text(language), cell.text)
        return cell._replace(text=text)


_Kind = TypeVar("_Kind", bound=type[Evidence])


def register(key: str) -> Callable[[_Kind], _Kind]:
    """Register a class as the kind of evidence that this key marks."""

    def registered(kind: _Kind) -> _Kind:
        Evidence.KINDS[key] = kind
        return kind

    return registered
