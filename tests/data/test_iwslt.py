"""IWSLT'14 in every published file layout, without a network."""

import gzip
import io
import tarfile
from http.client import IncompleteRead
from unittest.mock import Mock

import datasets
import pytest

from normlab.data import iwslt, multi30k
from normlab.data.cache import download, members
from normlab.data.corpus import ParallelText
from normlab.data.vocabulary import join_pieces
from tests.data.translation_archives import captions, corpus

TRAIN_TAGS = {
    "de": "<url>http://x</url>\n<title>Der Titel</title>\n<description>Ein Text.</description>\n"
    + "".join(f"Satz Nummer {i}, ja\u2019s gut.\n" for i in range(46)),
    "en": "<url>http://y</url>\n<title>The title</title>\n<description>A text.</description>\n"
    + "".join(f"Sentence number {i}, it's fine.\n" for i in range(46)),
}


def segment_file(name, lang):
    lines = [f'<seg id="{i}"> {name} {lang} &amp; it\u2019s {i}. </seg>' for i in (1, 2)]
    return "\n".join(["<doc docid='1'>", "<title>skipped</title>", *lines, "</doc>"]) + "\n"


def release_files():
    files = {f"train.tags.de-en.{lang}": text for lang, text in TRAIN_TAGS.items()}
    for name in iwslt.TEST_SETS:
        for lang in ("de", "en"):
            files[f"IWSLT14.{name}.de-en.{lang}.xml"] = segment_file(name, lang)
    return files


def write_archive(path, files):
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(f"de-en/{name}")
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return path


def write_lines(folder, stem, source, target):
    for lang, lines in (("de", source), ("en", target)):
        text = "".join(line + "\n" for line in lines)
        (folder / f"{stem}.{lang}.gz").write_bytes(gzip.compress(text.encode()))


def test_the_released_iwslt_files_are_prepared_by_the_published_protocol(tmp_path):
    files = release_files()
    write_archive(tmp_path / "de-en.tgz", files)
    released = corpus(tmp_path)
    assert released.label.startswith("IWSLT'14 de-en, not the protocol's text (46 training and 10")
    splits = released.splits
    # Without the metadata, 48 pairs are left: title, description and 46 sentences. The 23rd and
    # the 46th pair are held out.
    assert [len(splits[split]) for split in ("train", "valid", "test")] == [46, 2, 10]
    assert splits["train"].source[:3] == [
        "der titel",
        "ein text .",
        "satz nummer 0 , ja \u2019 s gut .",
    ]
    assert splits["train"].target[2] == "sentence number 0 , it &apos;s fine ."
    assert splits["valid"].target[0] == "sentence number 20 , it &apos;s fine ."
    # The five sets in order; apostrophes become ASCII, and entities are kept.
    assert splits["test"].target[0] == "ted.dev2010 en &amp; amp ; it &apos;s 1 ."
    assert [line.split()[0] for line in splits["test"].source[::2]] == [
        name.lower() for name in iwslt.TEST_SETS
    ]
    files.pop("IWSLT14.TEDX.dev2012.de-en.en.xml")
    write_archive(tmp_path / "de-en.tgz", files)
    with pytest.raises(ValueError, match=r"lacks IWSLT14\.TEDX\.dev2012\.de-en\.en\.xml"):
        corpus(tmp_path).read()


def test_cleaning_drops_pairs_that_are_empty_too_long_or_of_unequal_length():
    def pair(source, target):
        return ParallelText(["a " * source], ["b " * target])

    kept = [(1, 1), (2, 3), (175, 175), (120, 175)]
    lost = [(0, 1), (1, 2), (2, 4), (176, 175), (100, 151)]
    assert all(len(iwslt.clean(pair(*counts))) == 1 for counts in kept)
    assert all(len(iwslt.clean(pair(*counts))) == 0 for counts in lost)


def test_a_damaged_archive_and_one_beyond_the_size_limit_raise_an_error(tmp_path, monkeypatch):
    archive = write_archive(tmp_path / "de-en.tgz", {"a": "text " * 500})
    monkeypatch.setattr("normlab.data.cache.MAX_BYTES", 10)
    with pytest.raises(ValueError, match="unpacks to 2500 bytes or more"):
        list(members(archive, (".x",)))
    archive.write_bytes(archive.read_bytes()[:60])
    with pytest.raises(ValueError, match=r"cannot read .*de-en\.tgz"):
        list(members(archive, (".x",)))


def test_a_partial_download_is_not_kept(tmp_path, monkeypatch):
    (tmp_path / "origin").write_bytes(b"content")
    url = (tmp_path / "origin").as_uri()
    path = download("this text", url, "copy")
    assert path.read_bytes() == b"content"
    with pytest.raises(ValueError, match="this text cannot be downloaded"):
        download("this text", url + "-absent", "other")

    class Response(io.BytesIO):
        headers = {"Content-Length": "500000"}  # noqa: RUF012

    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: Response(b"x" * 100_002))
    with pytest.raises(ValueError, match="stopped after 100,002 of 500,000 bytes"):
        download("this text", "http://somewhere", "part")
    monkeypatch.setattr(Response, "read", Mock(side_effect=IncompleteRead(b"")))
    with pytest.raises(ValueError, match="IncompleteRead"):
        download("this text", "http://somewhere", "part")
    assert [file.name for file in path.parent.iterdir()] == ["copy"]


def test_without_a_data_dir_the_archive_is_downloaded(tmp_path, monkeypatch):
    archive = write_archive(tmp_path / "published.tgz", release_files())
    monkeypatch.setattr(iwslt, "URL", archive.as_uri())
    assert len(corpus(None).splits["train"]) == 46


def test_text_that_is_tokenized_here_is_prepared_again_for_another_tokenizer(tmp_path, monkeypatch):
    write_archive(tmp_path / "de-en.tgz", release_files())
    before = corpus(tmp_path).key()
    assert before == corpus(tmp_path).key()
    monkeypatch.setattr(iwslt, "version", lambda package: f"another {package}")
    assert corpus(tmp_path).key() != before


def test_the_error_without_a_network_is_one_line_that_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    no_hub = Mock(side_effect=ConnectionError("name not known\nretry"))
    monkeypatch.setattr(datasets, "load_dataset", no_hub)
    causes = {
        corpus: "IWSLT'14 cannot be downloaded .*HF_HUB_OFFLINE is set",
        captions: f"{multi30k.HUB} .*ConnectionError: name not known retry",
    }
    for build, cause in causes.items():
        with pytest.raises(ValueError, match=rf"^[^\n]*{cause}[^\n]*set data_dir[^\n]*task=toy"):
            build(None).read()


def write_prepared(folder, splits, infix=".bpe", pieces=True):
    for split, count in splits.items():
        sides = [
            [f"{lang}@@ {split} {i} ." if pieces else f"{lang}{split} {i} ." for i in range(count)]
            for lang in ("de", "en")
        ]
        write_lines(folder, f"{split}{infix}", *sides)


def test_prepared_bpe_text_is_preferred_and_can_be_read_in_both_directions(tmp_path):
    sizes = {"train": 4, "valid": 2, "test": 3}
    write_prepared(tmp_path, sizes)
    write_prepared(tmp_path, sizes, infix=".tok", pieces=False)
    pieces, words = corpus(tmp_path), corpus(tmp_path, prepared="tokenized")
    assert (pieces.form, words.form) == ("bpe", "tokenized")
    assert all("9 English test tokens" in x.label for x in (pieces, words))
    assert words.splits["test"].source[0] == "detest 0 ."
    back = corpus(tmp_path, source_language="en", target_language="de")
    assert back.splits["test"].source == pieces.splits["test"].target
    assert back.key() != pieces.key()


def test_iwslt_trained_on_its_validation_split_is_labelled_mini_ted(tmp_path):
    write_prepared(tmp_path, {"valid": 46, "test": 3})
    with pytest.raises(ValueError, match=r"neither train\.bpe\.de"):
        corpus(tmp_path).read()
    mini = corpus(tmp_path, train_from="valid")
    assert [len(mini.splits[split]) for split in ("train", "valid", "test")] == [44, 2, 3]
    assert mini.splits["valid"].source == ["de@@ valid 22 .", "de@@ valid 45 ."]
    assert mini.label.startswith("mini-TED") and "not an IWSLT'14 result" in mini.label


def test_mini_ted_has_the_published_reference_length(normlab_data):
    mini = corpus(normlab_data / "iwslt14_valid_test", train_from="valid")
    words = [word for line in mini.splits["test"].target for word in join_pieces(line).split()]
    assert len(words) == 131_161


@pytest.mark.parametrize(
    ("infixes", "prepared", "form"),
    [
        (["", ".tok"], "auto", "bpe"),  # BPE pieces are preferred, also in files without an infix
        ([".tok", ".bpe"], "auto", "bpe"),
        (["", ".tok"], "tokenized", "tokenized"),
        ([".tok"], "auto", "tokenized"),
    ],
)
def test_the_option_prepared_chooses_between_two_prepared_texts(tmp_path, infixes, prepared, form):
    sizes = {"train": 30, "valid": 3, "test": 3}
    for infix in infixes:
        write_prepared(tmp_path, sizes, infix, pieces=infix != ".tok")
    assert corpus(tmp_path, prepared=prepared).form == form


def test_the_error_for_a_missing_prepared_text_lists_the_files_it_looked_for(tmp_path):
    write_prepared(tmp_path, {"test": 3}, "")
    with pytest.raises(ValueError, match=r"looked for test\.tok\.de, .*prepared=tokenized\): set"):
        corpus(tmp_path, prepared="tokenized").read()
