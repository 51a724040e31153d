"""The loss per target token, in batches of any size."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from normlab.inspection.model.held_out_loss import by_length, loss_per_token
from tests.inspection.tiny_models import trained


def test_the_held_out_loss_does_not_depend_on_the_batch_size(tmp_path):
    about = trained(tmp_path, "norm=ln")
    batch = about.batch("valid", range(7))
    with torch.no_grad():
        logits = about.task.stepwise(about.model, batch)[0]
    smoothing = about.config["task"]["label_smoothing"]
    expected = float(F.cross_entropy(logits, batch.tgt_out, label_smoothing=smoothing))
    for size in (1, 3, 7):
        batches = by_length(about, np.arange(7), size=size)
        assert loss_per_token(about, batches) == pytest.approx(expected, rel=1e-5)
