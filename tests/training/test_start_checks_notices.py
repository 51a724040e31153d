"""Notices about norms' schedules, and warnings, before the first step."""

import pytest
import torch

from normlab.config.compose import compose
from normlab.norms.make import make_norm
from normlab.records.record import RunRecord
from normlab.training import train
from normlab.training.start_checks import notices
from tests.models.small import lm
from tests.tiny_runs import tiny


def test_a_run_that_ends_within_a_norms_schedule_prints_a_notice():
    phases = {"PowerNorm/warmup": 6, "freeze_statistics": 2}
    first, second = notices(torch.nn.Identity(), phases, 4)
    assert first.text.endswith(": PowerNorm warmup until step 6, freeze_statistics from step 3")
    assert second.warning and second.text.endswith(
        "within a norm's own schedule: PowerNorm warmup until step 6"
    )


@pytest.mark.parametrize("norm", ["in", "seqn", "gn_sample"])
def test_a_norm_that_leaks_later_tokens_gives_a_warning_before_the_first_step(norm):
    (notice,) = notices(lm(norm), {}, None)
    assert notice.warning and "leaks later tokens" in notice.text
    assert type(make_norm(norm, 8)).__name__ in notice.text
    assert not list(notices(lm("bn"), {}, None))


def test_a_record_lists_the_norms_that_leak_later_tokens(corpus, tmp_path):
    marked, plain = (
        train(compose(tiny(corpus, tmp_path, f"norm={norm}", "budget.steps=1")))
        for norm in ("in", "ln")
    )
    assert marked.sees_future == [type(make_norm("in", 8)).__name__]
    assert RunRecord.from_json(marked.to_json(), origin="here") == marked
    assert not plain.sees_future and "sees_future" not in plain.to_json()
    assert 0 < plain.first_loss < 100
