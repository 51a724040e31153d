"""What the interactive page needs to compute norms."""

from normlab.inspection.examples.page_examples import norms_of_width, page_examples


def test_a_norm_is_described_by_its_axes_groups_mean_and_eps():
    norms = norms_of_width(("ln", "rms", "gn", "bn", "none"), 4)
    assert norms["ln"] == {"pools": ["feature"], "groups": 1, "center": True, "eps": 1e-5}
    assert norms["rms"]["center"] is False and norms["gn"]["groups"] == 2
    assert norms["bn"]["pools"] == ["batch", "position"]
    assert norms["none"]["pools"] == [] and norms["none"]["eps"] == 0


def test_each_word_of_the_padded_batch_has_features():
    padding = page_examples()["padding"]
    assert [len(words) for words in padding["words"]] == [len(rows) for rows in padding["x"]]
    assert {len(features) for rows in padding["x"] for features in rows} == {4}
