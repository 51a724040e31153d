"""The evidence that a sentence or a cell of an article refers to, and what either language says.

A score, a difference and a count of runs come from a study's records, a verdict from the ledger
(`claims.json`), a finding from the computed checks (`computed.json`), and a sentence says why
nothing can be measured.
"""

import math

from msgspec import Struct, field

from normlab.articles.finding import PartFinding
from normlab.articles.language import Locale, Words
from normlab.articles.results import Results
from normlab.claims.evidence import CheckFinding
from normlab.errors import UserError
from normlab.formats import score_text
from normlab.metrics.baseline import at_baseline
from normlab.metrics.significance import Interval
from normlab.records.pairs import PLANNED, Experiment, Summary
from normlab.reports.comparison import Comparison
from normlab.studies.load import load_study

_STANDING = {"supports": "supported", "contradicts": "contradicted"}


class Item(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Evidence that a cell refers to; `about` names the half of the cell that it is about."""

    about: Words | None = None

    def short(self, results: Results, language: Locale) -> str:
        """Return what the cell shows; UserError if what it refers to does not exist."""
        text = self.text(results, language)
        return (
            text if self.about is None else language.about.format(self.about.text(language), text)
        )

    def text(self, results: Results, language: Locale) -> str:
        raise NotImplementedError

    def note(self, results: Results, language: Locale) -> str:
        """Return the full text for the notes; "" if the cell says everything."""
        return ""


class RowItem(Item, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Evidence from the seeds of a study's row: `of` is STUDY/SCALE, `at` the point, or ""."""

    of: str
    row: str
    at: str = ""
    data: bool = True

    @property
    def rows(self) -> tuple[str, ...]:
        """The rows of the study that are needed."""
        return (self.row,)

    def name(self) -> str:
        raise NotImplementedError

    def seeds_of(self, results: Results) -> Experiment:
        """Return the seeds; UserError if there are none, or none has the score."""
        experiment = results.experiment(self.of, self.row, self.at)
        if not experiment.scores(self.name()):
            row = f"{self.row} {self.at}".strip()
            raise UserError(f"{results.folder / self.of}: no score {self.name()} of {row!r}")
        return experiment

    def origin(self, experiment: Experiment, n: int, language: Locale) -> str:
        """Return the number of seeds and, unless `data` is false, the data, in brackets."""
        study, _, scale = self.of.partition("/")
        tasks = {str(record.choice("task")) for record in experiment.records}
        data = language.data_name(load_study(study).scale(scale).data_name_of(tasks))
        parts = [*([data] if self.data else []), language.seeds.format(n=n)]
        return language.comma.join(parts).join(language.ends)


class ScoreItem(RowItem, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Mean and standard deviation of a score over the seeds that finished."""

    score: str
    percent: bool = False

    def name(self) -> str:
        return self.score

    def text(self, results: Results, language: Locale) -> str:
        experiment = self.seeds_of(results)
        values = list(experiment.values(self.score).values())
        finite = [value for value in values if math.isfinite(value)]
        counts = {"n": len(finite), "of": len(values)}
        if not finite:
            value = language.never
        elif len(finite) < len(values):
            value = language.reached.format(**counts)
        else:
            value = _spread(values, self.score, percent=self.percent)
        shown = value + self.origin(experiment, len(values), language)
        if at_baseline([r for r in experiment.records if r.finished], self.score):
            shown += language.between + language.untrained
        return shown


class TrainsItem(RowItem, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How many seeds train: finish, clearly better than the untrained baseline by a score."""

    trains: str

    def name(self) -> str:
        return self.trains

    def text(self, results: Results, language: Locale) -> str:
        experiment = self.seeds_of(results)
        well = [r for r in experiment.records if r.finished and not at_baseline([r], self.trains)]
        return language.trains.format(n=len(well), of=len(experiment.records))


class GapItem(RowItem, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The difference of a score from another row, paired by seed, with its 95 % interval."""

    gap: str
    to: str

    @property
    def rows(self) -> tuple[str, ...]:
        return self.to, self.row

    def name(self) -> str:
        return self.gap

    def interval(self, results: Results) -> Interval:
        """Return the mean difference with its interval; UserError if the rows form no pairs."""
        base = results.experiment(self.of, self.to, self.at)
        interval = Comparison.of(self.seeds_of(results), base, PLANNED).interval(self.gap)
        if interval is None:
            raise UserError(f"{results.folder / self.of}: {self.row} and {self.to} form no pairs")
        return interval

    def text(self, results: Results, language: Locale) -> str:
        experiment = self.seeds_of(results)
        base = results.experiment(self.of, self.to, self.at)
        interval = self.interval(results)
        less = interval.mean < 0
        low, high = (-interval.high, -interval.low) if less else (interval.low, interval.high)
        mean, low, high = (score_text(x, self.gap) for x in (abs(interval.mean), low, high))
        difference = (language.lower if less else language.higher).format(f"{mean} [{low}, {high}]")
        seeds = len(experiment.values(self.gap).keys() & base.values(self.gap).keys())
        return difference + self.origin(experiment, seeds, language)


class PartItem(Item, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The verdict on a part of a claim, such as `2.worse`."""

    part: str

    def text(self, results: Results, language: Locale) -> str:
        return f"{language.verdicts[results.part(self.part)['verdict']]} [{self.place(results)}]"

    def place(self, results: Results) -> str:
        """Return the numbers of claim and part, such as `2.1`."""
        return f"{self.part.partition('.')[0]}.{results.part(self.part)['part']}"

    def value(self, results: Results, language: Locale) -> str:
        """Return what was found in one line; in Chinese "" if runs or timings gave no number."""
        part = results.part(self.part)
        if (finding := PartFinding.of(part)) is not None:
            return finding.text(language)
        known = part["verdict"] != "not measured" and language.code != "zh"
        return part["found"] if known else ""

    def facts(self, results: Results, language: Locale) -> str:
        """Return what was found and how it was tested; "" if nothing was found."""
        part, value = results.part(self.part), self.value(results, language)
        tested = part["test"] if language.code != "zh" else f"n = {part['n']}" if value else ""
        return language.between.join(filter(None, [value, tested])).rstrip(".")

    def note(self, results: Results, language: Locale) -> str:
        part = results.part(self.part)
        verdict = language.verdicts[part["verdict"]]
        statement = part["chinese"] if language.code == "zh" else part["statement"]
        if facts := self.facts(results, language):
            statement += language.measurement.format(facts)
        stated = language.about.format(verdict, statement)
        return f"[{self.place(results)}] {stated}"


class ByStanding(Struct, frozen=True, forbid_unknown_fields=True):
    """A finding in Chinese: one text if it supports its claim, another if it contradicts it."""

    supports: str = ""
    contradicts: str = ""


Translation = str | ByStanding
"""A finding in Chinese: a text that quotes its numbers, or one that is true at one standing only.

`变化 {moved:.1%}`, or `{supports: 结果不变}`.
"""


def translated(translation: Translation, finding: CheckFinding, place: str) -> str:
    """Return a finding in Chinese.

    Raises a UserError that begins with `place` if the text quotes a number that does not exist, or
    if there is no text for what was found.
    """
    text = translation
    if isinstance(text, ByStanding):
        text = text.supports if finding.standing == "supports" else text.contradicts
        if not text:
            raise UserError(
                f"{place}: the check now {finding.standing} its claim ({finding.finding}): say so "
                f"in Chinese with {finding.standing}:"
            )
    elif "{" not in text:
        raise UserError(
            f"{place}: {text!r} quotes no number, so it would stay if the finding changed: quote "
            f"one, or write {{{finding.standing}: {text}}}"
        )
    try:
        return text.format(**finding.numbers)
    except (LookupError, ValueError):
        names = ", ".join(finding.numbers) or "none"
        raise UserError(f"{place}: {text!r}: the finding's numbers are {names}") from None


class CheckItem(Item, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A finding of a computed check, such as `modes.mismatch 1`; `zh` states it in Chinese."""

    check: str
    zh: Translation

    def verdict(self, results: Results) -> str:
        return _STANDING[results.check(self.check).standing]

    def text(self, results: Results, language: Locale) -> str:
        return f"{language.verdicts[self.verdict(results)]} [{self.check}]"

    def in_chinese(self, results: Results) -> str:
        """Return the finding in Chinese; UserError if `zh` does not say what was found."""
        return translated(self.zh, results.check(self.check), f"check {self.check}: zh")

    def note(self, results: Results, language: Locale) -> str:
        finding = results.check(self.check)
        verdict = language.verdicts[self.verdict(results)]
        if language.code == "zh":  # what was found; the verdict is on the cell's words
            text = f"{verdict}{language.stop}{self.in_chinese(results)}{language.stop}"
        else:
            question = language.about.format(verdict, finding.question) + language.stop
            text = question + language.measurement.format(finding.finding)
        return f"[{self.check}] {text}"


class RemarkItem(Item, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A sentence for a cell with nothing to measure, or nothing that can be measured."""

    remark: Words = field(name="says")

    def text(self, results: Results, language: Locale) -> str:
        return self.remark.text(language)


KINDS: dict[str, type[Item]] = {
    **{"score": ScoreItem, "trains": TrainsItem, "gap": GapItem},
    **{"part": PartItem, "check": CheckItem, "says": RemarkItem},
}
"""The kinds of items, by the key that each of them has."""


def _spread(values: list[float], score: str, *, percent: bool) -> str:
    summary = Summary.of([100 * value for value in values] if percent else values)

    def digits(value: float) -> str:
        if "steps_to" in score:
            return f"{value:,.0f}"
        return f"{value:.1f}" if percent else score_text(value, score)

    sd = "" if summary.sd is None else f" +- {digits(summary.sd)}"
    return f"{digits(summary.mean)}{sd}{' %' if percent else ''}"
