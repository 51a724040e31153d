"""Rows of measurements: the data that come with normlab, and the perceptron for them."""

import numpy as np
import pytest
import torch

import normlab
from normlab.config.run_config import to_dict
from normlab.data.bundled import read_bundled
from normlab.data.tables import BundledTable
from normlab.errors import UserError
from normlab.training.build import build_model, build_task


def built(*words):
    config = to_dict(normlab.compose(list(words)))
    task = build_task(config)
    return task, build_model(config, task)


@pytest.mark.parametrize(
    ("name", "shape", "counts"),
    [("wine", (178, 13), [59, 71, 48]), ("cancer", (569, 30), [357, 212])],
)
def test_the_bundled_tables_have_the_published_rows_and_classes(name, shape, counts):
    data = read_bundled(name)
    assert data.features.shape == shape and len(data.names) == shape[1]
    assert np.bincount(data.labels).tolist() == counts
    splits = BundledTable(name=name, valid_size=24).splits()
    assert sum(map(len, splits.values())) == shape[0]
    rows = np.concatenate([table.features for table in splits.values()])
    assert np.array_equal(np.sort(rows, axis=0), np.sort(data.features, axis=0))


def test_a_size_that_rounds_to_no_example_of_any_class_is_refused():
    table = BundledTable(name="wine", valid_size=24)
    for key in ("train_size", "valid_size"):
        setattr(table, key, 1)
        with pytest.raises(UserError, match=rf"{key}=1: .* rounds to no rows; set it to 3 or more"):
            table.splits()


def test_features_keep_their_units_until_the_first_norm():
    task, model = built("task=wine", "norm=bn")
    batch = task.batch("train", range(32))
    assert batch.features.mean(0).max() > 500 and batch.features.mean(0).min() < 1
    sizes = []
    model.input_norm.register_forward_hook(lambda _, inputs, output: sizes.append(output))
    model.train()
    task.logits(model, batch)
    torch.testing.assert_close(sizes[0].mean((0, 1)), torch.zeros(13), atol=1e-4, rtol=0)
    names = [name for name, module in model.named_modules() if getattr(module, "path", "")]
    assert {"input_norm", "layers.0.norm", "layers.1.norm"} <= set(names)


def test_a_table_task_requires_a_model_for_rows_and_a_batch_size():
    with pytest.raises(UserError, match="a model for rows of features, such as model=mlp"):
        built("task=wine", "model=vit")
    with pytest.raises(UserError, match="measured in rows"):
        built("task=wine", "max_tokens=100", "batch_size=null")
