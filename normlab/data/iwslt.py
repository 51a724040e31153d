"""IWSLT'14 German-English by the protocol of fairseq's `prepare-iwslt14.sh`.

From WIT3's files it takes the text lines of `train.tags.*`, Moses tokens, pairs of 1 to 175 tokens
(ratio at most 1.5) and lower case; every 23rd pair is valid, and five evaluation sets make up test.
One deviation: sacremoses cuts the tokens, by Moses' own rules. Only text with the protocol's 6,750
test pairs and the reference length of the literature is called IWSLT'14 without more.
"""

import re
import tempfile
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Literal

from normlab.data.cache import (
    cache_key,
    cached_folder,
    download,
    file_checksum,
    unpack,
    write_lines,
)
from normlab.data.corpus import (
    Corpus,
    Form,
    ParallelText,
    check_german_english,
    find_text,
    missing_text,
    paired,
    read_lines,
    read_parallel,
    read_table,
    unavailable,
)
from normlab.data.vocabulary import moses_tokens

URL = "https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"
HUB = "bbaaaa/iwslt14-de-en"
# The hub's automatic conversion: `datasets` no longer runs the loading script of the main branch.
HUB_REVISION = "refs/convert/parquet"
ARCHIVE = "de-en.tgz"
LANGUAGES = ("de", "en")
TRAIN_PAIRS, TEST_PAIRS = 160_239, 6_750
# English tokens of the test in published logs; the two differ by the version of the tokenizer.
REFERENCE_LENGTHS = (131_161, 131_156)
PROTOCOL = "normlab.iwslt14/1"
MAX_TOKENS, MAX_RATIO = 175, 1.5
VALID_EVERY = 23
# The order in which the sets are joined to one test.
TEST_SETS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")

Splits = dict[str, ParallelText]
_SPLITS = ("train", "valid", "test")
_INFIXES: tuple[tuple[str, Form], ...] = ((".bpe", "bpe"), (".tok", "tokenized"), ("", "bpe"))
_SKIPPED = ("<url>", "<talkid>", "<keywords>")
_TAGS = re.compile(r"</?(?:title|description)>")
_SEGMENT = re.compile(r'<seg id="[0-9]+">\s*(.*?)\s*</seg>')


class Iwslt14(Corpus):
    """IWSLT'14 de-en, tokenized and lowercased, or in the pieces that fairseq's script wrote.

    Args:
        data_dir: `de-en.tgz`, or a folder with it, with its files, or with
            `{train,valid,test}[.bpe|.tok].{de,en}[.gz]`; null downloads.
        source_language, target_language: de and en, or the other way round.
        train_from: `valid` trains on the valid split where there is no training text, every 23rd
            pair of it held out: "mini-TED", which is not IWSLT'14.
        prepared: which of a folder's prepared texts to read; `auto` takes the pieces first.
        download: what to download without data_dir; the hub's tables lack one of the five test
            sets, which the label of the results says.
    """

    name = "iwslt14"
    licence = "CC BY-NC-ND (TED talks)"

    def __init__(
        self,
        data_dir: str | None,
        *,
        source_language: str,
        target_language: str,
        train_from: Literal["train", "valid"],
        prepared: Literal["auto", "bpe", "tokenized"],
        download: Literal["archive", "hub"],
    ) -> None:
        self.languages = check_german_english("IWSLT'14", source_language, target_language)
        self._data_dir = None if data_dir is None else Path(data_dir).expanduser()
        self._train_from, self._prepared, self._download = train_from, prepared, download
        self._form: Form = "tokenized"
        self._archive: str | None = None

    @property
    def form(self) -> Form:
        """`bpe` for prepared pieces, else `tokenized`; reads the text."""
        self.splits()
        return self._form

    @property
    def label(self) -> str:
        """What results are called: IWSLT'14, part of it, or mini-TED; reads the text."""
        train, test = self.splits()["train"], self.splits()["test"]
        if self._train_from == "valid":
            return "mini-TED (trained on the valid split of IWSLT'14; not an IWSLT'14 result)"
        if len(test) != TEST_PAIRS:
            return f"IWSLT'14 de-en, not the protocol's test ({len(test)} pairs)"
        if self.reference_length() not in REFERENCE_LENGTHS:
            return f"IWSLT'14 de-en, English test of {self.reference_length()} tokens"
        # Versions of the tokenizer move a few pairs over the cleaning limits.
        if abs(len(train) - TRAIN_PAIRS) > TRAIN_PAIRS // 100:
            return f"IWSLT'14 de-en, {len(train)} training pairs"
        return "IWSLT'14 de-en"

    def splits(self) -> Splits:
        return self._text

    @cached_property
    def _text(self) -> Splits:
        text = self._from_network() if self._data_dir is None else self._find(self._data_dir)
        if self._train_from == "valid":
            if "train" in text:
                raise ValueError(
                    "task.corpus.train_from=valid is for data without a training split, but "
                    "this data has one; set task.corpus.train_from=train"
                )
            text = {**hold_out(text["valid"]), "test": text["test"]}
        if self.languages == LANGUAGES:
            return text
        return {
            split: paired([pairs.target, pairs.source], pairs.origins[::-1])
            for split, pairs in text.items()
        }

    def reference_length(self) -> int:
        """Return the number of English test tokens, the pieces of a word counted once."""
        test = self.splits()["test"]
        english = test.target if self.languages[1] == "en" else test.source
        return sum(not piece.endswith("@@") for line in english for piece in line.split())

    def origin(self) -> str:
        return URL if self._download == "archive" else f"Hugging Face Hub, {HUB}"

    def describe(self) -> dict[str, object]:
        found = self.reference_length()
        check = {"expected": list(REFERENCE_LENGTHS), "found": found}
        return {
            **super().describe(),
            "reference_length_check": {**check, "ok": found in REFERENCE_LENGTHS},
            "archive_sha256": self._archive,
        }

    def _find(self, path: Path) -> Splits:
        """Read the first known form of the data at a path."""
        if path.is_file():
            return self._from_archive(path)
        if (path / ARCHIVE).is_file():
            return self._from_archive(path / ARCHIVE)
        if (release := find_release(path)) is not None:
            content = {file.name: file_checksum(file) for file in sorted(release.glob("*.de-en.*"))}
            return _cached(content, lambda _: read_release(release))
        return self._from_prepared(path)

    def _from_archive(self, archive: Path) -> Splits:
        self._archive = file_checksum(archive)
        return _cached({"archive": self._archive}, lambda folder: _read_archive(archive, folder))

    def _from_network(self) -> Splits:
        """Read the archive or the hub's tables, the other one where the first cannot be had."""
        failed: Exception | None = None
        for source in sorted(("archive", "hub"), key=lambda name: name != self._download):
            try:
                return _from_hub() if source == "hub" else self._downloaded()
            except Exception as error:
                failed = failed or error
        assert failed is not None
        raise unavailable(
            "IWSLT'14 de-en",
            f"{URL} and from the data set {HUB} of the Hugging Face Hub",
            failed,
            f"Run the command again, or set data_dir to {ARCHIVE}, to a folder of its files, or to "
            "train, valid and test as fairseq's prepare-iwslt14.sh writes them. If all you have is "
            "its valid and test, task.corpus.train_from=valid trains on the valid split, as "
            "mini-TED.",
        ) from failed

    def _downloaded(self) -> Splits:
        archive = download(URL, f"iwslt14-{ARCHIVE}")
        try:
            return self._from_archive(archive)
        except ValueError:
            archive.unlink(missing_ok=True)  # download it again next time
            self._archive = None
            raise

    def _from_prepared(self, folder: Path) -> Splits:
        """Read text that fairseq's script wrote: pieces or tokens."""
        infixes = [
            infix
            for infix, form in _INFIXES
            if self._prepared in ("auto", form) or not infix
            if find_text(folder, f"test{infix}.de")
        ]
        if not infixes:
            raise ValueError(missing_text(folder, "test[.bpe|.tok].de"))
        infix = infixes[0]
        splits = [name for name in _SPLITS if find_text(folder, f"{name}{infix}.de")]
        if self._train_from == "train" and "train" not in splits:
            raise ValueError(
                missing_text(folder, f"train{infix}.de")
                + ". Without any training text, task.corpus.train_from=valid trains on the valid "
                "split (mini-TED, not an IWSLT'14 result)"
            )
        wanted = sorted({"valid", "test", *splits}, key=_SPLITS.index)
        text = {split: read_parallel(folder, f"{split}{infix}", *LANGUAGES) for split in wanted}
        pieces = any("@@ " in line for line in text["test"].source)
        if infix and pieces != (infix == ".bpe"):
            raise ValueError(
                f"{text['test'].origins[0]} {'holds' if pieces else 'does not hold'} `@@ ` pieces; "
                "the name says otherwise: rename the files to .bpe or .tok"
            )
        self._form = "bpe" if pieces else "tokenized"
        return text


def _cached(content: dict[str, str], read: Callable[[Path], Splits]) -> Splits:
    """Return text that takes a minute to tokenize, from the cache after the first time."""

    def build(folder: Path) -> None:
        for split, text in read(folder).items():
            for lang, lines in zip(LANGUAGES, (text.source, text.target), strict=True):
                write_lines(folder / f"{split}.tok.{lang}", lines)

    name = f"iwslt14-text-{cache_key({'protocol': PROTOCOL, **content})}"
    folder = cached_folder(name, build)
    files = {split: [folder / f"{split}.tok.{lang}" for lang in LANGUAGES] for split in _SPLITS}
    return {split: paired([read_lines(x) for x in paths], paths) for split, paths in files.items()}


def _read_archive(archive: Path, place: Path) -> Splits:
    """Unpack an archive into a temporary folder within `place`, and read it."""
    with tempfile.TemporaryDirectory(dir=place) as folder:
        unpack(archive, Path(folder))
        release = find_release(Path(folder))
        if release is None:
            raise ValueError(
                f"{archive} does not hold train.tags.de-en.de, so it is not the IWSLT'14 de-en "
                f"archive; the published one is {URL}"
            )
        return read_release(release)


def _from_hub() -> Splits:
    """Read the hub's tables: raw text; `validation` and `test` are four of the five sets."""
    splits = ("train", "validation", "test")
    tables = read_table(HUB, splits=splits, languages=LANGUAGES, revision=HUB_REVISION)
    train = tables["train"]
    kept = train.pick([i for i, line in enumerate(train.source) if training_lines([line])])
    raw = paired([training_lines(kept.source), training_lines(kept.target)], train.origins)
    content = {split: " ".join(text.checksums()) for split, text in tables.items()}
    return _cached(content, lambda _: assemble(raw, [tables["validation"], tables["test"]]))


def find_release(folder: Path) -> Path | None:
    """Return the folder with `train.tags.de-en.de`, this one or its `de-en`, or None."""
    places = (folder, folder / "de-en")
    return next((place for place in places if (place / "train.tags.de-en.de").is_file()), None)


def read_release(folder: Path) -> Splits:
    """Read the files of the release into `train`, `valid`, `test`: tokenized, lowercased.

    Raises ValueError naming the file that is missing, or whose counterpart differs in length.
    """
    tags = [folder / f"train.tags.de-en.{lang}" for lang in LANGUAGES]
    sets = [[folder / f"IWSLT14.{x}.de-en.{lang}.xml" for lang in LANGUAGES] for x in TEST_SETS]
    missing = [path.name for pair in [tags, *sets] for path in pair if not path.is_file()]
    if missing:
        raise ValueError(f"{folder} lacks {', '.join(missing)}; unpack all of {ARCHIVE}")
    train = paired([training_lines(read_lines(path)) for path in tags], tags)
    return assemble(train, [paired([segments(read_lines(x)) for x in pair], pair) for pair in sets])


def assemble(train: ParallelText, tests: list[ParallelText]) -> Splits:
    """Apply the protocol to raw (de, en) training text and evaluation sets."""
    test = ParallelText(
        [line for part in tests for line in part.source],
        [line for part in tests for line in part.target],
        origins=("the test sets (de)", "the test sets (en)"),
    )
    return {**hold_out(_lower(clean(_tokenized(train)))), "test": _lower(_tokenized(test))}


def training_lines(lines: Iterable[str]) -> list[str]:
    """Return the text of a `train.tags` file: no metadata; titles and descriptions without tags."""
    kept = (line for line in lines if not any(tag in line for tag in _SKIPPED))
    return [_TAGS.sub("", line).strip() for line in kept]


def segments(lines: Iterable[str]) -> list[str]:
    """Return the sentences of an evaluation file, typographic apostrophes made plain.

    Entities such as `&amp;` stay as they are, as in the script: the published reference has them.
    """
    found = (_SEGMENT.search(line) for line in lines)
    return [match.group(1).replace("\u2019", "'") for match in found if match]


def _tokenized(text: ParallelText) -> ParallelText:
    sides = zip((text.source, text.target), LANGUAGES, strict=True)
    return paired([moses_tokens(x, lang=lang) for x, lang in sides], text.origins)


def _lower(text: ParallelText) -> ParallelText:
    return paired([[x.lower() for x in side] for side in (text.source, text.target)], text.origins)


def clean(text: ParallelText) -> ParallelText:
    """Leave out pairs with a side outside 1 to 175 tokens, or one over 1.5 times the other."""
    pairs = enumerate(zip(text.source, text.target, strict=True))
    sizes = ((i, sorted(len(side.split()) for side in pair)) for i, pair in pairs)
    return text.pick([i for i, (a, b) in sizes if a >= 1 and b <= min(MAX_TOKENS, MAX_RATIO * a)])


def hold_out(text: ParallelText) -> Splits:
    """Split off every 23rd pair, the 23rd first, as `valid`; the rest is `train`."""
    valid = range(VALID_EVERY - 1, len(text), VALID_EVERY)
    return {
        "train": text.pick([i for i in range(len(text)) if i not in valid]),
        "valid": text.pick(valid),
    }
