"""IWSLT'14 German-English: where its text is found, and what results on it may be called.

Decides which forms of the data are known (the published archive, its files unpacked, the hub's
tables, text prepared by fairseq's script), and the label: only text whose test is the 6,750 pairs
of fairseq's protocol with the reference length of the literature is called IWSLT'14 without more.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from normlab.data import ted
from normlab.data.archive import download, unpack
from normlab.data.cache import cache_key, cached_folder, file_checksum
from normlab.data.corpus import (
    Corpus,
    Form,
    ParallelText,
    find_text,
    missing_text,
    read_lines,
    read_parallel,
)
from normlab.data.hub import has_tables, read_table, unavailable

URL = "https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"
HUB = "bbaaaa/iwslt14-de-en"
# The hub's automatic conversion: `datasets` no longer runs the loading script of the main branch.
HUB_REVISION = "refs/convert/parquet"
ARCHIVE = "de-en.tgz"
TRAIN_PAIRS, TEST_PAIRS = 160_239, 6_750
# English tokens of the test in published logs; the two differ by the version of the tokeniser.
REFERENCE_LENGTHS = (131_161, 131_156)
PROTOCOL = "normlab.iwslt14/1"

Prepared = Literal["auto", "bpe", "tokenized"]
TrainFrom = Literal["train", "valid"]
Download = Literal["archive", "hub"]
_INFIXES = {"bpe": (".bpe", ""), "tokenized": (".tok", "")}
_SPLITS = ("train", "valid", "test")


class Iwslt14(Corpus):
    """IWSLT'14 de-en, tokenised and lowercased, or in the pieces that fairseq's script wrote.

    Args:
        data_dir: `de-en.tgz` or a folder with it, its files, the hub's Parquet files, or
            `{train,valid,test}[.bpe|.tok].{de,en}[.gz]`; null downloads.
        source_language, target_language: de and en, or the other way round.
        train_from: `valid` trains on the valid split where there is no training text, every 23rd
            pair of it held out: "mini-TED", which is not IWSLT'14.
        prepared: which of a folder's prepared texts to read; `auto` takes the pieces first.
        download: which source to try first without data_dir; the hub's tables lack one of the five
            test sets, which the label of the results says.
    """

    name = "iwslt14"
    licence = "CC BY-NC-ND (TED talks)"

    def __init__(
        self,
        data_dir: str | None,
        *,
        source_language: str,
        target_language: str,
        train_from: TrainFrom,
        prepared: Prepared,
        download: Download,
    ) -> None:
        if {source_language, target_language} != set(ted.LANGUAGES):
            raise ValueError(
                f"IWSLT'14 here is German-English: task.corpus.source_language={source_language} "
                f"and target_language={target_language} must be de and en, in either order"
            )
        self.languages = (source_language, target_language)
        self._data_dir = None if data_dir is None else Path(data_dir).expanduser()
        self._train_from: TrainFrom = train_from
        self._prepared: Prepared = prepared
        self._download: Download = download
        self._read: dict[str, ParallelText] | None = None
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
        # Versions of the tokeniser move a few pairs over the cleaning limits.
        if abs(len(train) - TRAIN_PAIRS) > TRAIN_PAIRS // 100:
            return f"IWSLT'14 de-en, {len(train)} training pairs"
        return "IWSLT'14 de-en"

    def splits(self) -> dict[str, ParallelText]:
        """Return `train`, `valid`, `test`; the first call may download and tokenise (a minute)."""
        if self._read is None:
            text = self._from_network() if self._data_dir is None else self._find(self._data_dir)
            if self._train_from == "valid":
                if "train" in text:
                    raise ValueError(
                        "task.corpus.train_from=valid is for data without a training split, but "
                        "this data has one; set task.corpus.train_from=train"
                    )
                text = {**ted.hold_out(text["valid"]), "test": text["test"]}
            if self.languages != ted.LANGUAGES:
                text = {split: _reversed(pairs) for split, pairs in text.items()}
            self._read = text
        return self._read

    def reference_length(self) -> int:
        """Return the number of English test tokens, the pieces of a word counted once."""
        test = self.splits()["test"]
        english = test.target if self.languages[1] == "en" else test.source
        return sum(not piece.endswith("@@") for line in english for piece in line.split())

    def origin(self) -> str:
        """Return the place of the archive, or the data set of the hub."""
        return URL if self._download == "archive" else f"Hugging Face Hub, {HUB}"

    def describe(self) -> dict[str, object]:
        """Return the base description, and the check of the reference length."""
        found = self.reference_length()
        check = {"expected": list(REFERENCE_LENGTHS), "found": found}
        ok = found in REFERENCE_LENGTHS
        return {
            **super().describe(),
            "reference_length_check": {**check, "ok": ok},
            "archive_sha256": self._archive,
        }

    def _find(self, path: Path) -> dict[str, ParallelText]:
        """Read the first known form of the data at a path."""
        if path.is_file():
            return self._from_archive(path)
        if (path / ARCHIVE).is_file():
            return self._from_archive(path / ARCHIVE)
        release = ted.find_release(path) if path.is_dir() else None
        if release is not None:
            files = sorted(release.glob("*.de-en.*"))
            content = {file.name: file_checksum(file) for file in files}
            return _cached(content, lambda _: ted.read_release(release))
        if path.is_dir() and has_tables(path):
            return self._from_tables(str(path), revision=None)
        return self._from_prepared(path)

    def _from_archive(self, archive: Path) -> dict[str, ParallelText]:
        self._archive = file_checksum(archive)
        return _cached({"archive": self._archive}, lambda folder: _read_archive(archive, folder))

    def _from_tables(self, path: str, *, revision: str | None) -> dict[str, ParallelText]:
        """Read the hub's tables: raw text; `validation` and `test` are four of the five sets."""
        tables = read_table(path, languages=ted.LANGUAGES, revision=revision)
        missing = {"train", "validation", "test"} - set(tables)
        if missing:
            raise ValueError(f"{path} lacks {', '.join(sorted(missing))}; it has {list(tables)}")
        train = tables["train"]
        kept = [i for i, line in enumerate(train.source) if ted.training_lines([line])]
        raw = ParallelText(
            ted.training_lines(train.source[i] for i in kept),
            ted.training_lines(train.target[i] for i in kept),
            origins=train.origins,
        )
        content = {split: " ".join(text.checksums()) for split, text in tables.items()}
        return _cached(content, lambda _: ted.assemble(raw, [tables["validation"], tables["test"]]))

    def _from_network(self) -> dict[str, ParallelText]:
        """Read the archive or the hub's tables, the other one where the first cannot be had."""
        sources = {
            "archive": URL,
            "hub": f"{HUB} (revision {HUB_REVISION}) of the Hugging Face Hub",
        }
        errors: dict[str, Exception] = {}
        for name in sorted(sources, key=lambda name: name != self._download):
            try:
                if name == "hub":
                    return self._from_tables(HUB, revision=HUB_REVISION)
                archive = download(URL, f"iwslt14-{ARCHIVE}")
                try:
                    return self._from_archive(archive)
                except ValueError:
                    archive.unlink(missing_ok=True)  # what does not unpack is fetched again
                    self._archive = None
                    raise
            except Exception as error:
                errors[name] = error
        first, second = errors
        other = " ".join(str(errors[second]).split())[:80]
        raise unavailable(
            "IWSLT'14 de-en",
            f"{sources[first]} and {sources[second]} ({other})",
            errors[first],
            f"With a network, run the command again. Without one, set data_dir to {ARCHIVE} or to "
            "a folder with its files, the hub's Parquet files, or train, valid and test as .de "
            "and .en (also .bpe.de or .tok.de, plain or .gz) as fairseq's prepare-iwslt14.sh "
            "writes them. If all you have is its valid and test, task.corpus.train_from=valid "
            "trains on the valid split, as mini-TED.",
        ) from errors[first]

    def _from_prepared(self, folder: Path) -> dict[str, ParallelText]:
        """Read text that fairseq's script wrote: pieces or tokens."""
        found = self._prepared_text(folder)
        if found is None:
            raise ValueError(missing_text(folder, "test[.bpe|.tok].de"))
        infix, form = found
        splits = [name for name in _SPLITS if find_text(folder, name, "de", infix=infix)]
        if "train" not in splits and self._train_from == "train":
            raise ValueError(
                missing_text(folder, f"train{infix}.de")
                + ". Without any training text, task.corpus.train_from=valid trains on the valid "
                "split (mini-TED, not an IWSLT'14 result)"
            )
        wanted = _SPLITS if self._train_from == "train" else splits
        text = {
            split: read_parallel(folder, split, *ted.LANGUAGES, infix=infix) for split in wanted
        }
        missing = {"valid", "test"} - set(text)
        if missing:
            raise ValueError(missing_text(folder, f"{min(missing)}{infix}.de"))
        pieces = any("@@ " in line for line in text["test"].source)
        if pieces != (form == "bpe") and infix:
            raise ValueError(
                f"{text['test'].origins[0]} {'holds' if pieces else 'does not hold'} `@@ ` pieces; "
                "the name says otherwise: rename the files to .bpe or .tok"
            )
        self._form = "bpe" if pieces else "tokenized"
        return text

    def _prepared_text(self, folder: Path) -> tuple[str, Form] | None:
        """Return the infix of the prepared text to read, and the form that its name says."""
        forms: tuple[Form, ...] = ("bpe", "tokenized")
        for form in forms if self._prepared == "auto" else (self._prepared,):
            for infix in _INFIXES[form]:
                if find_text(folder, "test", "de", infix=infix):
                    return infix, form
        return None


def _reversed(text: ParallelText) -> ParallelText:
    return ParallelText(text.target, text.source, origins=(text.origins[1], text.origins[0]))


def _read_archive(archive: Path, place: Path) -> dict[str, ParallelText]:
    """Unpack an archive into a folder within `place`, which is gone after, and read it."""
    with tempfile.TemporaryDirectory(dir=place) as folder:
        unpack(archive, Path(folder))
        release = ted.find_release(Path(folder))
        if release is None:
            raise ValueError(
                f"{archive} does not hold train.tags.de-en.de, so it is not the IWSLT'14 de-en "
                f"archive; the published one is {URL}"
            )
        return ted.read_release(release)


def _cached(
    content: dict[str, str], read: Callable[[Path], dict[str, ParallelText]]
) -> dict[str, ParallelText]:
    """Return text that takes a minute to tokenise, from the cache where it has been before."""

    def build(folder: Path) -> None:
        for split, text in read(folder).items():
            for lang, lines in zip(ted.LANGUAGES, (text.source, text.target), strict=True):
                data = "".join(line + "\n" for line in lines).encode()
                (folder / f"{split}.tok.{lang}").write_bytes(data)

    name = f"iwslt14-text-{cache_key({'protocol': PROTOCOL, **content})}"
    folder = cached_folder(name, build)
    return {
        split: ted.paired([read_lines(path) for path in files], files)
        for split in _SPLITS
        for files in [[folder / f"{split}.tok.{lang}" for lang in ted.LANGUAGES]]
    }
