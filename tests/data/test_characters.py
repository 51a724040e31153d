"""Text as characters: the vocabulary, the splits, and a missing file."""

from pathlib import Path

import pytest

from normlab.config.compose import compose
from normlab.config.run_config import to_dict
from normlab.data.vocabulary import DocumentTokenizer
from normlab.errors import UserError
from normlab.training.build import build_task

TEXT = "To be, or not to be:\nthat is the question.\n\n" * 40
SETTINGS = ["task=lm", "task.pieces=characters", "task/corpus=shakespeare", "task.max_length=64"]


def task_of(place: Path):
    return build_task(to_dict(compose([*SETTINGS, f"data_dir={place}"])))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "input.txt").write_text(TEXT, "utf-8")
    return tmp_path


def test_every_character_is_a_token_and_decoding_restores_line_breaks(text: Path):
    task = task_of(text)
    tokenizer = task.data.tokenizer
    parts = [tokenizer.decode(task.split(split).text.ids) for split in ("train", "valid", "test")]
    # White space at the ends of a split is dropped.
    assert "".join("".join(parts).split()) == "".join(TEXT.split())
    assert all(part in TEXT and "be:\nthat" in part for part in parts[::2])
    assert len(tokenizer) == DocumentTokenizer.first_ordinary + len(set(TEXT))


def test_the_last_tenth_is_the_test_split_and_data_dir_may_be_a_folder_or_a_file(text: Path):
    task, same = task_of(text), task_of(text / "input.txt")
    sizes = [len(task.split(split).text.ids) for split in ("train", "valid", "test")]
    assert sizes == [len(same.split(split).text.ids) for split in ("train", "valid", "test")]
    assert sizes[2] == pytest.approx(0.1 * len(TEXT), abs=3)
    windows = task.drawn("test")
    assert windows.lengths.max() == 64 and windows.lengths.sum() == sizes[2] + 1  # the end mark
    assert windows.characters.sum() == pytest.approx(sizes[2] + 1)


@pytest.mark.parametrize(
    ("content", "change", "message"),
    [
        ("To be, or not to be: that is it", [], r"leaves no text for valid; raise .*share=0.01"),
        ("To be" + " " * 40, [], r"leaves no text for test; raise task.corpus.test_share=0.1"),
        (TEXT, ["task.corpus.test_share=0.996", "task.corpus.valid_share=0.0039"], r"for train; l"),
    ],
    ids=["valid", "test", "train"],
)
def test_a_split_without_text_is_refused(content, change, message, tmp_path: Path):
    (tmp_path / "input.txt").write_text(content, "utf-8")
    settings = [*SETTINGS, f"data_dir={tmp_path}", *change]
    with pytest.raises(UserError, match=message):
        _ = build_task(to_dict(compose(settings))).data


def test_the_error_for_a_missing_text_says_where_to_download_it(tmp_path: Path):
    with pytest.raises(UserError, match=r"set data_dir to input.txt.*download it from https://raw"):
        build_task(to_dict(compose(SETTINGS)))
    with pytest.raises(UserError, match=r"input.txt does not exist; download it from https://raw"):
        task_of(tmp_path)
