"""Multi30k and IWSLT'14 from every layout in which they are published, or not to be had."""

import gzip
import io
import json
import tarfile

import pyarrow
import pyarrow.parquet
import pytest

from normlab.data import iwslt
from normlab.data.cache import download, members, unpack
from normlab.data.corpus import ParallelText, read_table
from normlab.data.iwslt import Iwslt14
from normlab.data.multi30k import Multi30k

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


def write_release(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in release_files().items():
        (folder / name).write_text(text, "utf-8")
    return folder


def write_archive(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return path


def corpus(data_dir, **values):
    defaults = dict(
        source_language="de",
        target_language="en",
        train_from="train",
        prepared="auto",
        download="archive",
    )
    return Iwslt14(None if data_dir is None else str(data_dir), **{**defaults, **values})


def captions(data_dir, **values):
    languages = {"source_language": "de", "target_language": "en"}
    return Multi30k(None if data_dir is None else str(data_dir), **{**languages, **values})


def test_protocol_on_the_released_files(tmp_path):
    released = corpus(write_release(tmp_path))
    assert released.label == "IWSLT'14 de-en, not the protocol's test (10 pairs)"
    assert not released.describe()["reference_length_check"]["ok"]
    with pytest.raises(ValueError, match=r"set task\.corpus\.train_from=train"):
        corpus(tmp_path, train_from="valid").splits()
    splits = released.splits()
    # 49 lines of text less the metadata: title, description and 46 sentences; the 23rd and 46th
    # of these 48 pairs are held out.
    assert {split: len(text) for split, text in splits.items()} == {
        "train": 46,
        "valid": 2,
        "test": 10,
    }
    assert splits["train"].source[:3] == [
        "der titel",
        "ein text .",
        "satz nummer 0 , ja \u2019 s gut .",
    ]
    assert splits["train"].target[2] == "sentence number 0 , it &apos;s fine ."
    assert splits["valid"].target[0] == "sentence number 20 , it &apos;s fine ."
    # The five sets in their order; the apostrophe is made plain here, and entities stay.
    assert splits["test"].target[0] == "ted.dev2010 en &amp; amp ; it &apos;s 1 ."
    assert [line.split()[0] for line in splits["test"].source[::2]] == [
        name.lower() for name in iwslt.TEST_SETS
    ]


def test_cleaning_limits():
    def pair(source, target):
        return ParallelText(["a " * source], ["b " * target])

    kept = [(1, 1), (2, 3), (175, 175), (120, 175)]
    lost = [(0, 1), (1, 2), (2, 4), (176, 175), (100, 151)]
    assert all(len(iwslt.clean(pair(*counts))) == 1 for counts in kept)
    assert all(len(iwslt.clean(pair(*counts))) == 0 for counts in lost)


def test_archive_and_folder_give_the_same_text(tmp_path):
    folder = write_release(tmp_path / "files")
    members = {f"de-en/{name}": text for name, text in release_files().items()}
    archive = write_archive(tmp_path / "de-en.tgz", members)
    from_files = corpus(folder)
    for path in (archive, tmp_path):
        from_archive = corpus(path)
        assert from_archive.key() == from_files.key()
        assert from_archive.describe()["checksums"] == from_files.describe()["checksums"]
    assert from_archive.describe()["archive_sha256"] is not None


def test_a_release_with_a_missing_file_names_it(tmp_path):
    write_release(tmp_path)
    (tmp_path / "IWSLT14.TEDX.dev2012.de-en.en.xml").unlink()
    with pytest.raises(ValueError, match=r"lacks IWSLT14\.TEDX\.dev2012\.de-en\.en\.xml"):
        corpus(tmp_path).splits()


@pytest.mark.parametrize(
    ("name", "kind"),
    [("../escape.txt", tarfile.REGTYPE)]
    + [("a", kind) for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE)],
)
def test_an_archive_that_leaves_its_folder_or_holds_a_device_is_refused(tmp_path, name, kind):
    archive = tmp_path / "de-en.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, "../../etc/passwd"
        tar.addfile(info)
    with pytest.raises(ValueError, match=r"de-en\.tgz is not safe to unpack"):
        corpus(archive).splits()
    assert not list(tmp_path.rglob("escape.txt"))


def test_a_damaged_archive_and_one_beyond_the_limit_are_named(tmp_path, monkeypatch):
    archive = write_archive(tmp_path / "de-en.tgz", {"a": "text " * 500})
    monkeypatch.setattr("normlab.data.cache.MAX_BYTES", 10)
    for read in (lambda: unpack(archive, tmp_path / "out"), lambda: [*members(archive, (".x",))]):
        with pytest.raises(ValueError, match="unpacks to 2500 bytes or more"):
            read()
    archive.write_bytes(archive.read_bytes()[:60])
    with pytest.raises(ValueError, match=r"cannot read .*de-en\.tgz"):
        unpack(archive, tmp_path / "out")


def test_a_download_is_whole_or_absent(tmp_path):
    (tmp_path / "origin").write_bytes(b"content")
    url = (tmp_path / "origin").as_uri()
    path = download(url, "copy", root=tmp_path)
    assert path.read_bytes() == b"content"
    with pytest.raises(OSError):
        download(url + "-absent", "other", root=tmp_path)
    assert [file.name for file in path.parent.iterdir()] == ["copy"]


def test_a_download_that_breaks_off_is_not_kept(tmp_path, monkeypatch):
    class Response(io.BytesIO):
        headers = {"Content-Length": "500000"}  # noqa: RUF012

    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: Response(b"x" * 100_002))
    with pytest.raises(OSError, match="broke off after 100,002 of 500,000 bytes"):
        download("http://somewhere", "copy", root=tmp_path)
    assert not list((tmp_path / "downloads").iterdir())


@pytest.fixture
def published(tmp_path, monkeypatch):
    """Return the archive that is downloaded without data_dir."""
    members = {f"de-en/{name}": text for name, text in release_files().items()}
    archive = write_archive(tmp_path / "published.tgz", members)
    monkeypatch.setenv("NORMLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(iwslt, "URL", archive.as_uri())
    return archive


def test_without_data_the_archive_is_downloaded_and_a_damaged_one_is_not_kept(published):
    content = published.read_bytes()
    published.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"cannot read .*iwslt14-de-en\.tgz"):
        corpus(None).splits()
    published.write_bytes(content)
    assert len(corpus(None).splits()["train"]) == 46


@pytest.mark.parametrize("source", ["archive", "hub"])
def test_no_network_is_one_helpful_paragraph(monkeypatch, source):
    def fail(*_, **__):
        raise ConnectionError("name not known\nretry")

    monkeypatch.setattr(iwslt, "download", fail)
    monkeypatch.setattr(iwslt, "read_table", fail)
    with pytest.raises(ValueError) as raised:
        corpus(None, download=source).splits()
    message = str(raised.value)
    assert "\n" not in message and len(message) < 900
    cause = "ConnectionError: name not known retry"
    for part in ({"archive": iwslt.URL, "hub": iwslt.HUB}[source], cause, "set data_dir", "toy"):
        assert part in message


def write_parquet(folder, split, rows):
    (folder / split).mkdir(parents=True)
    table = pyarrow.table({"translation": [{"de": de, "en": en} for de, en in rows]})
    pyarrow.parquet.write_table(table, folder / split / "0000.parquet")


def test_the_hub_tables_take_the_same_protocol(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "hf"))
    folder = tmp_path / "tables"
    sides = (TRAIN_TAGS[lang].splitlines() for lang in ("de", "en"))
    write_parquet(folder, "train", list(zip(*sides, strict=True)))
    write_parquet(folder, "validation", [("Eins.", "One.")])
    write_parquet(folder, "test", [("Zwei.", "Two.")])
    monkeypatch.setattr(iwslt, "HUB", str(folder))
    monkeypatch.setattr(iwslt, "HUB_REVISION", None)
    released = corpus(write_release(tmp_path / "files")).splits()
    splits = corpus(None, download="hub").splits()
    assert splits["train"].source == released["train"].source
    assert splits["valid"].target == released["valid"].target
    assert splits["test"].target == ["one .", "two ."]


def write_prepared(folder, splits, infix=".bpe", pieces=True):
    for split, count in splits.items():
        for lang in ("de", "en"):
            word = f"{lang}@@ {split}" if pieces else f"{lang}{split}"
            text = "".join(f"{word} {i} .\n" for i in range(count))
            (folder / f"{split}{infix}.{lang}.gz").write_bytes(gzip.compress(text.encode()))


def test_prepared_text_prefers_pieces(tmp_path):
    sizes = {"train": 4, "valid": 2, "test": 3}
    write_prepared(tmp_path, sizes)
    write_prepared(tmp_path, sizes, infix=".tok", pieces=False)
    pieces, words = corpus(tmp_path), corpus(tmp_path, prepared="tokenized")
    assert (pieces.form, words.form) == ("bpe", "tokenized")
    assert pieces.reference_length() == words.reference_length() == 9
    assert words.splits()["test"].source[0] == "detest 0 ."


def test_text_that_belies_its_name_is_refused(tmp_path):
    write_prepared(tmp_path, {"train": 4, "valid": 2, "test": 3}, infix=".tok", pieces=True)
    with pytest.raises(ValueError, match=r"test\.tok\.de\.gz holds `@@ ` pieces"):
        corpus(tmp_path).splits()


def test_other_direction(tmp_path):
    write_prepared(tmp_path, {"train": 4, "valid": 2, "test": 3})
    forth = corpus(tmp_path)
    back = corpus(tmp_path, source_language="en", target_language="de")
    assert back.splits()["test"].source == forth.splits()["test"].target
    assert back.reference_length() == forth.reference_length()
    assert back.describe()["checksums"] == forth.describe()["checksums"]
    assert back.key() != forth.key()


def test_missing_training_text_tells_of_mini_ted(tmp_path):
    write_prepared(tmp_path, {"valid": 46, "test": 3})
    with pytest.raises(ValueError, match=r"train\.bpe\.de.*train_from=valid"):
        corpus(tmp_path).splits()
    mini = corpus(tmp_path, train_from="valid")
    assert [len(mini.splits()[split]) for split in ("train", "valid", "test")] == [44, 2, 3]
    assert mini.splits()["valid"].source == ["de@@ valid 22 .", "de@@ valid 45 ."]
    assert mini.label.startswith("mini-TED") and "not an IWSLT'14 result" in mini.label


@pytest.mark.parametrize("build", [corpus, captions])
def test_only_german_and_english(tmp_path, build):
    with pytest.raises(ValueError, match="target_language=fr must be de and en"):
        build(tmp_path, target_language="fr")


def write_json_lines(folder, sizes):
    for name, count in sizes.items():
        rows = ({"en": f"{name} {i} en", "de": f"{name} {i} de\n"} for i in range(count))
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_multi30k_from_the_hubs_files(tmp_path, monkeypatch):
    write_json_lines(tmp_path, {"train": 3, "val": 2, "test": 1})
    splits = captions(tmp_path).splits()
    assert splits["train"].source == ["train 0 de", "train 1 de", "train 2 de"]
    assert splits["valid"].target == ["val 0 en", "val 1 en"]
    assert list(splits) == ["train", "valid", "test"]


def test_multi30k_label_is_honest(tmp_path, normlab_data):
    write_json_lines(tmp_path, {"train": 3, "val": 2, "test": 1})
    assert captions(tmp_path).label == "Multi30k, not the published split (3/2/1 pairs)"
    origin = normlab_data / "multi30k"
    assert captions(origin).label == "Multi30k"
    assert (
        captions(normlab_data).describe()["checksums"] == captions(origin).describe()["checksums"]
    )
    edited = tmp_path / "edited"
    edited.mkdir()
    for path in origin.iterdir():
        (edited / path.name).write_bytes(path.read_bytes())
    text = gzip.decompress((edited / "val.en.gz").read_bytes()).replace(b"man", b"men")
    (edited / "val.en.gz").write_bytes(gzip.compress(text))
    assert captions(edited).label == "Multi30k, edited text (valid.en differ from the published)"


def test_multi30k_missing_file_and_no_network(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"neither train\.de"):
        captions(tmp_path).splits()

    def fail(*_, **__):
        raise ConnectionError("no route")

    monkeypatch.setattr("normlab.data.multi30k.read_table", fail)
    with pytest.raises(ValueError, match=r"bentrevett/multi30k.*no route.*set data_dir=FOLDER"):
        captions(None).splits()


def test_rows_of_another_shape_list_their_columns(tmp_path):
    (tmp_path / "train.jsonl").write_text(json.dumps({"fr": "a", "en": "b"}) + "\n")
    with pytest.raises(ValueError, match="has the columns fr, en; needed are de and en"):
        read_table(str(tmp_path), splits=["train"], languages=("de", "en"))
    with pytest.raises(ValueError, match="lacks test; it has train"):
        read_table(str(tmp_path), splits=["train", "test"], languages=("fr", "en"))
