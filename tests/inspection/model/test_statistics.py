"""The loss with running statistics of a norm that evaluates by the batch."""

from normlab.inspection.model.statistics import statistics
from tests.inspection.tiny_models import examined, trained


def test_a_norm_with_eval_stats_batch_is_examined_with_running_statistics_too(tmp_path):
    by_batch = trained(tmp_path, "norm=bn", "norm.eval_stats=batch")
    measured = examined(by_batch, statistics).values
    assert measured == statistics(trained(tmp_path, "norm=bn")).values
