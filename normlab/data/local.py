"""Any language pair in a folder: `{train,valid,test}.{source,target}`, plain or `.gz`.

Decides the file names, and that text which is tokenised or segmented already is said to be so
(`form`) rather than guessed: scoring and subwords depend on it.
"""

import re
from pathlib import Path
from typing import Literal

from normlab.data.corpus import Corpus, EmptyLines, Form, ParallelText, find_text, read_parallel

_LANGUAGE = re.compile(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*")


class FolderCorpus(Corpus):
    """Text of the user's own.

    Files are `{split}{infix}.{language}`; further test sets are `test_<name>{infix}.{language}`.
    `empty_lines` applies to training text: `error`, or `drop` the pair and count it. In valid and
    test an empty line is an error. `name` is part of the experiment: runs on two texts of one name
    would be taken for the same.
    """

    licence = "as stated by the owner of the text"

    def __init__(
        self,
        data_dir: str | None,
        *,
        source_language: str,
        target_language: str,
        form: Form,
        infix: str,
        empty_lines: EmptyLines,
        name: str = "translation",
    ) -> None:
        if data_dir is None:
            raise ValueError(
                "task=translation reads your own text: set data_dir=FOLDER to a folder with train, "
                f"valid and test as train{infix}.{source_language}, train{infix}.{target_language} "
                "and so on (plain or .gz)"
            )
        self.name = name
        self._folder = Path(data_dir).expanduser()
        self._infix = infix
        self._empty_lines: EmptyLines = empty_lines
        for key, code in (("source", source_language), ("target", target_language)):
            if not _LANGUAGE.fullmatch(code):
                raise ValueError(
                    f"task.corpus.{key}_language={code!r}: give a language's code, such as de or "
                    "pt_BR, which the file's name ends in"
                )
        self.languages = (source_language, target_language)
        self.form = form
        self.label = self._folder.resolve().name
        self._splits: dict[str, ParallelText] | None = None

    def splits(self) -> dict[str, ParallelText]:
        """Read `train`, `valid`, `test` and each further `test_<name>` of the folder, once."""
        if self._splits is None:
            self._splits = {split: self._read(split) for split in self._split_names()}
        return self._splits

    def _read(self, split: str) -> ParallelText:
        policy: Literal["error", "drop"] = self._empty_lines if split == "train" else "error"
        return read_parallel(
            self._folder, split, *self.languages, infix=self._infix, empty_lines=policy
        )

    def _split_names(self) -> list[str]:
        return [
            "train",
            "valid",
            "test",
            *further_tests(self._folder, self.languages[0], infix=self._infix),
        ]


def further_tests(folder: Path, lang: str, *, infix: str) -> list[str]:
    """Return the names of test sets beyond `test` in a folder: `test_<name>{infix}.{lang}[.gz]`."""
    if not folder.is_dir():
        return []
    names = {
        path.name.removesuffix(".gz").removesuffix(f"{infix}.{lang}")
        for path in folder.glob("test_*")
    }
    return sorted(
        name for name in names if "." not in name and find_text(folder, name, lang, infix=infix)
    )
