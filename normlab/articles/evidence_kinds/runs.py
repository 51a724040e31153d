"""Scores, numbers of runs that train, and differences, computed from the records of a study.

{score: test/bleu, of: translation_norms/small, row: bn, at: placement=pre}
{trains: test/bleu, of: translation_norms/small, row: bn, at: placement=pre}
{gap: test/bleu, of: batching/small, row: bn, to: ln, at: batching=bucket}
"""

import math

from msgspec import Struct

from normlab.articles.evidence_kinds.base import CellText, Evidence, StudyRows, register
from normlab.articles.explanation import Explanation, Scores, in_both
from normlab.articles.results import Results
from normlab.claims.in_words.language import Locale, Words
from normlab.errors import UserError
from normlab.metrics.baseline import against_baseline, at_baseline, is_amount_of_training
from normlab.metrics.glossary import metric_key
from normlab.metrics.score_text import score_text
from normlab.metrics.significance import Interval
from normlab.records.pairs import PLANNED, Experiment, Summary
from normlab.reports.tables.comparison import Comparison, count_diverged
from normlab.studies.load import load_study


class RowEvidence(Struct, Evidence, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Evidence from the runs of a row. `of` is STUDY/SCALE, and `at` the point of its grid or "".

    The text names the data, unless `data` is false.
    """

    of: str
    row: str
    at: str = ""
    data: bool = True
    about: Words | None = None

    @property
    def metric(self) -> str:
        """The name of the score."""
        raise NotImplementedError

    @property
    def study_rows(self) -> StudyRows:
        return StudyRows(self.of.partition("/")[0], (self.row,), self.at)

    def text(self, results: Results, language: Locale) -> str:
        """Return a text that sums up what the runs show."""
        raise NotImplementedError

    def cell_text(self, results: Results, language: Locale) -> CellText:
        return CellText(self.text(results, language))

    def explanation(self, results: Results) -> Explanation:
        """Return what the runs show, with the name of the score.

        On the page, no column heading has the name.
        """

        def finding(language: Locale) -> str:
            name = language.score_name(self.metric)
            return language.phrasing.about.format(name, self.text(results, language))

        return Scores(in_both(finding), self.of)

    def runs(self, results: Results) -> Experiment:
        """Return the runs of the row, one per seed.

        Raises UserError if some finished, but none has the score.
        """
        experiment = results.experiment(self.of, self.row, self.at)
        finished = any(run.finished for run in experiment.records)
        if finished and not experiment.scores(self.metric):
            row = f"{self.row} {self.at}".strip()
            raise UserError(f"{results.folder / self.of}: row {row!r} has no score {self.metric}")
        return experiment

    def origin(self, experiment: Experiment, n: int, language: Locale) -> str:
        """Return the data and the number `n` of seeds, in brackets."""
        study, _, scale = self.of.partition("/")
        tasks = {str(run.choice("task")) for run in experiment.records}
        data = language.data_name(load_study(study).scale(scale).data_name_of(tasks))
        parts = [*([data] if self.data else []), language.runs.seeds.format(n=n)]
        return language.phrasing.comma.join(parts).join(language.phrasing.ends)


@register("score")
class ScoreEvidence(RowEvidence, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The mean and standard deviation of a score over seeds.

    If the score is infinite in some runs, as for a target that was not reached, the number of the
    other runs is shown instead. If no run finished, the number of runs that train is.
    """

    score: str
    percent: bool = False

    @property
    def metric(self) -> str:
        return self.score

    def text(self, results: Results, language: Locale) -> str:
        experiment = self.runs(results)
        values = list(experiment.values(self.score).values())
        if not values:
            return language.runs.trains.format(n=0, of=len(experiment.records))
        finite = [value for value in values if math.isfinite(value)]
        words, converging = language.runs, "converge" in metric_key(self.score)
        unreached = is_amount_of_training(self.score) and len(finite) < len(values)
        if unreached and not finite:
            text = words.unconverged if converging else words.never
        elif unreached:
            counted = words.converged if converging else words.reached
            text = counted.format(n=len(finite), of=len(values))
        else:
            text = self._mean_and_deviation(values, language)
        text += self.origin(experiment, len(values), language)
        if len(values) < (n := len(experiment.records)):
            text += language.phrasing.between + words.finished.format(n=len(values), of=n)
        return text + self._if_untrained(experiment, language)

    def _if_untrained(self, experiment: Experiment, language: Locale) -> str:
        """Return that the runs do not clearly beat the untrained baseline, or "" if they do.

        If another score than the one shown says so, it is named.
        """
        finished = [run for run in experiment.records if run.finished]
        compared = against_baseline(finished, self.score)
        if compared is None or compared.beaten:
            return ""
        text = language.runs.untrained
        if compared.score != self.score:
            name = language.score_name(compared.score)
            text = language.runs.untrained_score.format(score=name)
        return language.phrasing.between + text

    def _mean_and_deviation(self, values: list[float], language: Locale) -> str:
        summary = Summary.of([100 * value for value in values] if self.percent else values)
        mean = language.number(self._digits(summary.mean))
        sd = summary.sd
        deviation = "" if sd is None else f" {language.signs.plus_minus} {self._digits(sd)}"
        return f"{mean}{deviation}{language.signs.percent if self.percent else ''}"

    def _digits(self, value: float) -> str:
        return f"{value:z.1f}" if self.percent else score_text(value, self.score)


@register("trains")
class TrainsEvidence(RowEvidence, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The number of runs that train: that finish clearly better than the untrained baseline."""

    trains: str

    @property
    def metric(self) -> str:
        return self.trains

    def text(self, results: Results, language: Locale) -> str:
        runs = self.runs(results).records
        train = [run for run in runs if run.finished and not at_baseline([run], self.trains)]
        return language.runs.trains.format(n=len(train), of=len(runs))

    def explanation(self, results: Results) -> Explanation:
        return Scores(in_both(lambda language: self.text(results, language)), self.of)


@register("gap")
class GapEvidence(RowEvidence, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The difference of a score from the row `to`, paired by seed, with its 95 % interval.

    If a run of a row diverged, the number of its runs that train is shown instead.
    """

    gap: str
    to: str

    @property
    def metric(self) -> str:
        return self.gap

    @property
    def study_rows(self) -> StudyRows:
        return StudyRows(self.of.partition("/")[0], (self.to, self.row), self.at)

    def interval(self, results: Results) -> Interval:
        """Return the mean difference with its interval.

        Raises UserError if there is none.
        """
        base = results.experiment(self.of, self.to, self.at)
        compared = Comparison.of(self.runs(results), base, PLANNED)
        interval = compared.interval(self.gap)
        if interval is None:
            why = compared.obstacle or "they have fewer than two pairs, or all the same difference"
            rows = f"rows {self.row} and {self.to}"
            raise UserError(f"{results.folder / self.of}: {rows} have no interval: {why}")
        return interval

    def text(self, results: Results, language: Locale) -> str:
        """Return the size of the difference, `0.51 [0.20, 0.82] lower`, with data and seeds."""
        for row in (self.row, self.to):
            runs = results.experiment(self.of, row, self.at).records
            if count_diverged(runs):
                train = [run for run in runs if run.finished and not at_baseline([run], self.gap)]
                return f"{row} {language.runs.trains.format(n=len(train), of=len(runs))}"
        interval = self.interval(results)
        lower = interval.mean < 0
        low, high = (-interval.high, -interval.low) if lower else (interval.low, interval.high)
        mean, low, high = (
            language.number(score_text(value, self.gap))
            for value in (abs(interval.mean), low, high)
        )
        way = language.runs.lower if lower else language.runs.higher
        origin = self.origin(self.runs(results), interval.n, language)
        return way.format(f"{mean} [{low}, {high}]") + origin
