"""Tables of the hub as documents: rows, articles, splits and errors."""

from unittest.mock import Mock

import datasets
import pytest

from normlab.data.documents import HubDocuments
from tests.data.splits_of_documents import splits_of


class Hub:
    """A folder of tables, and the corpus that reads it."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()

    def __call__(self, **values):
        defaults = {"path": "owner/text", "config": None, "rows": "documents", "column": "text"}
        defaults |= {"form": "sentences", "language": "en", "licence": "CC0", "name": "tables"}
        defaults |= {"valid_share": 0.2, "test_share": 0.2, "data_dir": str(self.folder)}
        return HubDocuments(**{**defaults, **values})

    def write(self, rows, *splits):
        for split in splits or ("train", "validation", "test"):
            table = datasets.Dataset.from_dict({"text": rows})
            table.to_parquet(self.folder / f"{split}.parquet")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "hf"))
    return Hub(tmp_path / "tables")


def test_each_row_of_a_table_is_one_document(hub):
    hub.write(["One.\nTwo.\n\nThree.", None, "Four. Five."])
    found = splits_of(hub())
    assert set(found) == {"train", "valid", "test"}
    assert found["train"] == [("One.", "Two.", "Three."), ("Four. Five.",)]
    cut = splits_of(hub(form="paragraphs"))["valid"]
    assert cut == [("One.", "Two.", "Three."), ("Four.", "Five.")]


WIKITEXT = [
    "",
    " = First Article = \n",
    "",
    " It is text . It goes on . \n",
    " = x = \n",  # a line of an equation: no blank line before it
    "",
    " = = Section = = \n",
    "",
    " More text . \n",
    "",
    " = B = \n",
    "",
    " The second . \n",
]


def test_wikitext_headings_begin_articles(hub):
    hub.write(WIKITEXT)
    first, second = splits_of(hub(rows="articles"))["train"]
    text = ("It is text . It goes on .", "= x =", "= = Section = =", "More text .")
    assert first == ("= First Article =", *text)
    assert second == ("= B =", "The second .")
    cut = splits_of(hub(rows="articles", form="paragraphs"))["train"][0]
    assert cut[:3] == ("= First Article =", "It is text .", "It goes on .")


@pytest.mark.parametrize("missing", [["validation"], ["test"], ["validation", "test"]])
def test_missing_splits_are_held_out_from_the_training_split(hub, missing):
    rows = [f"Row {i}." for i in range(80)]
    hub.write([*rows, *rows[:5]], "train")
    for split in {"validation", "test"} - set(missing):
        hub.write(["Given."], split)
    found = splits_of(hub())
    texts = {split: {x for (x,) in documents} for split, documents in found.items()}
    names = {"validation": "valid", "test": "test"}
    for split in names:
        assert (texts[names[split]] == {"Given."}) == (split not in missing)
    parts = [texts["train"], *(texts[names[split]] for split in missing)]
    assert set.union(*parts) == set(rows)
    assert sum(map(len, parts)) == 80  # equal documents are held out together
    assert all(len(part) > 5 for part in parts)


def test_the_key_of_tables_depends_on_content_and_settings(hub):
    hub.write(["One.", "", "Two."])
    key = hub().key()
    assert hub(valid_share=0.1).key() != key
    hub.write(["One.", "Other."], "test")
    assert hub().key() != key


def test_unreadable_tables_raise_an_error_that_says_what_to_do(hub, monkeypatch):
    hub.write(["One."])
    with pytest.raises(ValueError, match=r"task\.corpus\.column=body; it has train \(\['text'\]\)"):
        splits_of(hub(column="body"))
    (hub.folder / "train.parquet").write_text("damaged")
    with pytest.raises(ValueError, match=r"cannot load the data set .*tables \("):
        splits_of(hub())
    offline = Mock(side_effect=ConnectionError("OfflineModeIsEnabled"))
    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(ValueError, match=r"OfflineModeIsEnabled.*data_dir=FOLDER.*corpus=pydoc"):
        splits_of(hub(data_dir=None))
