"""The endpoint `document`: does the interval of what was measured hold the document's figure?

document:
  study: translation
  scale: gpu
  score: test/bleu_tok
  of: {norm: bn}
  where: {placement: pre}           optional
  over: [batching]                  optional: nuisances, averaged within a seed
  value: 28.7
  data: {task: iwslt}               the document's own; on other data nothing is compared

The side is chosen by the options of groups and by dotted keys of the config.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from normlab.claims.decision import CONSTANT, UNDECIDED, Decision, constant
from normlab.claims.endpoints.base import keys
from normlab.claims.endpoints.level import mean_text, stopped
from normlab.claims.endpoints.study import Asked, StudyEndpoint, per_seed, scores_text
from normlab.claims.finding import Finding, of_decision
from normlab.claims.looks import LOOKS, sequential
from normlab.claims.membership import value_of
from normlab.claims.node import Node, Where
from normlab.claims.runs import Runs
from normlab.claims.sample import Sample
from normlab.metrics.spread import p_value, t_interval


@dataclass(frozen=True)
class Document(StudyEndpoint):
    """One setting, of which the document states a figure."""

    kind: ClassVar[str] = "document"
    says: ClassVar[tuple[str, ...]] = ("figure",)

    of: Where
    value: float
    data: Where

    @classmethod
    def read(cls, node: Node) -> "Document":
        """Read it; see the module for the keys."""
        own = node.node(cls.kind)
        study, scale = own.study()
        found = cls(
            study=study,
            scale=scale,
            scores=own.texts("score"),
            of=own.where("of", required=True),
            where=own.where("where"),
            over=own.texts("over", required=False),
            value=own.number("value"),
            data=own.where("data", required=True),
        )
        own.finish()
        return found

    @property
    def sides(self) -> list[Where]:
        """Return the one setting."""
        return [self.of]

    def question(self, says: str) -> str:
        """Say in a line what is asked."""
        where = keys({**self.data, **self.where})
        name = scores_text(self.scores)
        return f"the interval of {name} with {keys(self.of)} holds {self.value:g}; {where}"

    def judge(self, runs: Runs, says: str) -> Finding:
        """Decide by whether the interval holds the figure, on the document's data alone."""
        side = keys(self.of)
        asked = self.asked(runs, self.of)
        if (other := self._other_data(asked)) is not None:
            return asked.finding(Finding("not measured", reason=f"other data: {other}"))
        if (unanswered := asked.without_answer(self._shown)) is not None:
            return unanswered
        values = per_seed(asked.sample, side, self.scores)

        def look(chosen: Sequence[int], share: float) -> Decision:
            if stopped(asked, side, chosen) is not None:
                return UNDECIDED
            figures = [values[seed] for seed in chosen]
            if constant(figures):
                return Decision("undecided", 1.0, None, CONSTANT)
            interval = t_interval(figures, confidence=1 - share)
            holds = interval.low <= self.value <= interval.high
            p = p_value(interval, against=self.value)
            # To hold it is no reason to stop: only the last look may say so.
            last = len(chosen) == LOOKS[-1].seeds
            verdict = "contradicted" if not holds else "supported" if last else "undecided"
            return Decision(verdict, p, interval, confidence=1 - share)

        at, decision = sequential(asked.sample.seeds, look)
        used = asked.sample.seeds[: at.seeds]
        stop = stopped(asked, side, used)
        return asked.finding(stop or of_decision(decision, at), used)

    def _other_data(self, asked: Asked) -> str | None:
        """Say which data the runs are of, where they are not of the document's."""
        cells = asked.sample.cells.values()
        runs = [run for cell in cells for each in cell.values() for run in each]
        for run in runs:
            for key, wanted in self.data.items():
                if str(value_of(run.config, key)) != str(wanted):
                    return f"{key}={value_of(run.config, key)}, the document's is {key}={wanted}"
        return None

    def _shown(self, sample: Sample) -> str:
        """Put runs into words that decide nothing."""
        return mean_text(per_seed(sample, keys(self.of), self.scores)) or "no finite figure"
