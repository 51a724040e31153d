"""IWSLT'14 German-English, prepared as by fairseq's `prepare-iwslt14.sh`.

The text lines of WIT3's `train.tags.*` are cut into Moses tokens, pairs of 1 to 175 tokens (ratio
at most 1.5) are kept, and all text is lowercased. Every 23rd pair goes to valid; five evaluation
sets make up test. The tokenizer is sacremoses, not the original Moses script. Only text with the
protocol's 6,750 test pairs and the published reference length is labelled plain IWSLT'14.
"""

import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from normlab.data.cache import download, members
from normlab.data.corpus import (
    REQUIRED,
    Corpus,
    Form,
    ParallelText,
    check_german_english,
    decoded,
    find_text,
    load_tables,
    parallel_tables,
    read_parallel,
)
from normlab.data.vocabulary import moses_tokens

URL = "https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"
HUB = "bbaaaa/iwslt14-de-en"
# The hub's Parquet conversion: `datasets` no longer runs the loading script of the main branch.
HUB_REVISION = "refs/convert/parquet"
ARCHIVE = "de-en.tgz"
LANGUAGES = ("de", "en")
TRAIN_PAIRS, TEST_PAIRS = 160_239, 6_750
# English test tokens in published logs; the two come from different tokenizer versions.
REFERENCE_LENGTHS = (131_161, 131_156)
MAX_TOKENS, MAX_RATIO, VALID_EVERY = 175, 1.5, 23
# The order in which the evaluation sets are joined into one test split.
TEST_SETS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
# Infixes of the file names that fairseq's script writes; files without one hold BPE pieces.
INFIXES: Mapping[str, Form] = {".bpe": "bpe", ".tok": "tokenized", "": "bpe"}

Splits = dict[str, ParallelText]


@dataclass(kw_only=True, eq=False)
class Iwslt14(Corpus):
    """IWSLT'14 de-en, tokenized and lowercased, or as BPE pieces written by fairseq's script.

    Attributes:
        data_dir: `de-en.tgz`, a folder with that archive or its files, or a folder with
            `{train,valid,test}[.bpe|.tok].{de,en}[.gz]`; null downloads the text.
        source_language, target_language: de and en, in either order.
        train_from: `valid` is for data without training text. It trains on the valid split and
            holds out every 23rd pair of it; this is "mini-TED", not IWSLT'14.
        prepared: which prepared text to read from a folder; `auto` prefers BPE pieces.
        download: which source to try first without data_dir. The hub's tables lack one of the five
            test sets, and the label of the results says so.
    """

    data_dir: str | None
    source_language: str
    target_language: str
    train_from: Literal["train", "valid"]
    prepared: Literal["auto", "bpe", "tokenized"]
    download: Literal["archive", "hub"]
    name = "iwslt14"
    licence = "CC BY-NC-ND (TED talks)"

    def __post_init__(self) -> None:
        self.languages = (self.source_language, self.target_language)
        check_german_english("IWSLT'14", *self.languages)
        self.origin = URL if self.download == "archive" else f"Hugging Face Hub, {HUB}"

    @property
    def form(self) -> Form:
        """`bpe` for prepared BPE pieces, else `tokenized`; reads the text."""
        return "bpe" if self._found[0] == "bpe" else "tokenized"

    @property
    def label(self) -> str:
        """The name in result tables: IWSLT'14, part of it, or mini-TED; reads the text."""
        if self.train_from == "valid":
            return "mini-TED (trained on the valid split of IWSLT'14; not an IWSLT'14 result)"
        train, test = self.splits["train"], self.splits["test"]
        length = reference_length(test.target if self.languages == LANGUAGES else test.source)
        # Tokenizer versions disagree on whether a few training pairs exceed the cleaning limits.
        whole = abs(len(train) - TRAIN_PAIRS) <= TRAIN_PAIRS // 100 and len(test) == TEST_PAIRS
        if whole and length in REFERENCE_LENGTHS:
            return "IWSLT'14 de-en"
        return (
            f"IWSLT'14 de-en, not the protocol's text ({len(train)} training and {len(test)} test "
            f"pairs, {length} English test tokens)"
        )

    def key(self) -> str:
        form, texts = self._found
        checksums = [text.checksums() for text in texts.values()]
        return f"normlab.iwslt14/1 {form} {self.languages} {self.train_from} {checksums}"

    def read(self) -> Splits:
        form, texts = self._found
        text = assemble(texts) if form == "raw" else texts
        if self.train_from == "valid":
            text = {**hold_out(text["valid"]), "test": text["test"]}
        if self.languages == LANGUAGES:
            return text
        return {x: ParallelText(y.target, y.source, y.origins[::-1]) for x, y in text.items()}

    @cached_property
    def _found(self) -> tuple[Form, Splits]:
        """The form of the texts, and the texts by name; `raw` texts still need `assemble`."""
        if self.data_dir is None:
            return "raw", self._from_network()
        path = Path(self.data_dir).expanduser()
        archive = path if path.is_file() else path / ARCHIVE
        if archive.is_file():
            return "raw", read_archive(archive)
        folder = path / "de-en" if (path / "de-en").is_dir() else path
        if files := {file.name: file.read_bytes() for file in folder.glob("*.de-en.*")}:
            return "raw", read_release(files, origin=folder)
        return self._read_ready(path)

    def _from_network(self) -> Splits:
        """Download the archive or the hub's tables; if the first choice fails, try the other."""
        ways = [_download_archive, _load_tables]
        first, second = ways if self.download == "archive" else ways[::-1]
        try:
            return first()
        except ValueError as error:
            try:
                return second()
            except ValueError:
                raise error from None

    def _read_ready(self, folder: Path) -> tuple[Form, Splits]:
        """Read text prepared by fairseq's script, as BPE pieces or tokens."""
        for infix, form in INFIXES.items():
            if self.prepared in ("auto", form) and find_text(folder, f"test{infix}.de"):
                break
        splits = REQUIRED[1:] if self.train_from == "valid" else REQUIRED
        return form, {x: read_parallel(folder, f"{x}{infix}", LANGUAGES) for x in splits}


def _download_archive() -> Splits:
    archive = download("IWSLT'14", URL, f"iwslt14-{ARCHIVE}")
    try:
        return read_archive(archive)
    except ValueError:
        archive.unlink(missing_ok=True)  # so that the next attempt downloads it again
        raise


def _load_tables() -> Splits:
    """Read raw text from the hub, whose `validation` and `test` hold four of the five test sets."""
    tables = load_tables(HUB, revision=HUB_REVISION, files=ARCHIVE)
    names = {split: split for split in ("train", "validation", "test")}
    texts = parallel_tables(tables, names, LANGUAGES)
    sides = map(training_lines, (texts["train"].source, texts["train"].target))
    return {**texts, "train": ParallelText(*sides, origins=texts["train"].origins)}


def read_archive(archive: Path) -> Splits:
    """Read the release from its archive."""
    files = {Path(name).name: text for name, text in members(archive, (".de", ".en", ".xml"))}
    return read_release(files, origin=archive)


def read_release(files: Mapping[str, bytes], *, origin: Path) -> Splits:
    """Return the raw text of the release: `train`, then the evaluation sets."""
    names = {name: f"IWSLT14.{name}.de-en.%s.xml" for name in TEST_SETS}
    texts: Splits = {}
    for name, pattern in {"train": "train.tags.de-en.%s", **names}.items():
        paths = [pattern % lang for lang in LANGUAGES]
        if missing := [path for path in paths if path not in files]:
            raise ValueError(f"{origin} lacks {', '.join(missing)}; the published archive is {URL}")
        lines = (decoded(io.BytesIO(files[path]), origin=path) for path in paths)
        read = training_lines if name == "train" else segments
        texts[name] = ParallelText(*map(read, lines), origins=paths)
    return texts


def training_lines(lines: Iterable[str]) -> list[str]:
    """Return the text of a `train.tags` file, without metadata lines and title tags."""
    kept = (line for line in lines if not re.search("<url>|<talkid>|<keywords>", line))
    return [re.sub("</?(?:title|description)>", "", line).strip() for line in kept]


def segments(lines: Iterable[str]) -> list[str]:
    """Return the sentences of an evaluation file, with typographic apostrophes made ASCII.

    Entities such as `&amp;` are kept, as by fairseq's script: the published references have them.
    """
    found = (re.search(r'<seg id="[0-9]+">\s*(.*?)\s*</seg>', line) for line in lines)
    return [match.group(1).replace("\u2019", "'") for match in found if match]


def assemble(texts: Splits) -> Splits:
    """Apply the protocol to raw texts, given in the order `train`, evaluation sets."""
    train, *tests = map(_lowered_tokens, texts.values())
    test = ParallelText(
        [line for part in tests for line in part.source],
        [line for part in tests for line in part.target],
        origins=("the test sets (de)", "the test sets (en)"),
    )
    return {**hold_out(clean(train)), "test": test}


def _lowered_tokens(text: ParallelText) -> ParallelText:
    sides = zip((text.source, text.target), LANGUAGES, strict=True)
    tokens = ([x.lower() for x in moses_tokens(lines, lang=lang)] for lines, lang in sides)
    return ParallelText(*tokens, origins=text.origins)


def clean(text: ParallelText) -> ParallelText:
    """Drop pairs with a side outside 1 to 175 tokens, or one side more than 1.5 times the other."""
    pairs = enumerate(zip(text.source, text.target, strict=True))
    sizes = ((i, sorted(len(side.split()) for side in pair)) for i, pair in pairs)
    return text.pick([i for i, (a, b) in sizes if a >= 1 and b <= min(MAX_TOKENS, MAX_RATIO * a)])


def hold_out(text: ParallelText) -> Splits:
    """Split off every 23rd pair, starting with the 23rd, as `valid`; the rest is `train`."""
    valid = range(VALID_EVERY - 1, len(text), VALID_EVERY)
    train = [i for i in range(len(text)) if i not in valid]
    return {"train": text.pick(train), "valid": text.pick(valid)}


def reference_length(lines: Iterable[str]) -> int:
    """Return the number of tokens, counting a word in BPE pieces once."""
    return sum(not piece.endswith("@@") for line in lines for piece in line.split())
