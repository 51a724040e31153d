"""`pytest --normlab-model=MODEL`: one test per question about a model.

MODEL is `hf:FOLDER` (a folder or id of transformers), `hf-tiny:NAME` (a small random model of a
class or type of transformers, such as `hf-tiny:bert`), `timm:NAME` (with random weights) or
`module:function`, which returns a model, its batches and, optionally, a dict of arguments of
`normlab.inspect`. A test fails if its finding is `broken` or `failed`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from normlab.findings.finding import Finding

OPTION = "--normlab-model"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--normlab-model`."""
    text = "examine hf:FOLDER, hf-tiny:NAME, timm:NAME or module:function; may be repeated"
    parser.getgroup("normlab").addoption(OPTION, action="append", default=[], help=text)


def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add one test for each question about each model."""
    models = config.getoption(OPTION)
    if models:
        from normlab.any_model.questions.registry import questions

        for place in models:
            report = _Report(place)
            for question in questions():
                name = f"{place}::{question.name}"
                items.append(QuestionItem.from_parent(session, name=name, report=report))


class _Report:
    """A model's report, computed when the first question needs it."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._findings: Mapping[str, Finding] | None = None

    def finding(self, question: str) -> "Finding":
        """Return the finding on a question.

        If the model cannot be loaded, the test of the first question fails and the others are
        skipped.
        """
        if self._findings is None:
            from normlab.any_model.inspect import inspect
            from normlab.any_model.loading.load import load_by_prefix
            from normlab.errors import UserError

            self._findings = {}
            model, batches, options = load_by_prefix(self.place)
            if "checks" in options:
                raise UserError(
                    f"{self.place}: omit checks, because there is one test per question"
                )
            self._findings = inspect(model, batches, **options).findings
        if not self._findings:
            pytest.skip(f"{self.place} could not be examined")
        return self._findings[question]


class QuestionItem(pytest.Item):
    """The test of one question about one model."""

    def __init__(self, *, report: _Report, **options: Any) -> None:
        super().__init__(**options)
        self._report_of_model = report

    def runtest(self) -> None:
        from normlab.findings.summary import FAILING

        finding = self._report_of_model.finding(self.name.rpartition("::")[2])
        if finding.why_not:
            pytest.skip(finding.why_not)
        if finding.verdict in FAILING:
            raise Accused(f"{finding.verdict}: {finding}")

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        if isinstance(excinfo.value, Accused | ValueError):
            return f"{self.name}: {excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[str, None, str]:
        return self.name, None, self.name


class Accused(AssertionError):
    """Raised by the test of a question whose finding is broken or failed."""
