"""The user's own parallel text in a folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from normlab.data.corpus import REQUIRED, Corpus, Form, ParallelText
from normlab.data.languages import check_script, language_of
from normlab.data.text_files import files_of, read_parallel
from normlab.errors import UserError


@dataclass(kw_only=True, eq=False)
class FolderCorpus(Corpus):
    """The user's own parallel text, in any language pair.

    Files are called `{train,valid,test}.{language}`, plain or `.gz`. Runs on two texts with the
    same `name` count as runs on the same text.
    """

    data_dir: str | None
    source_language: str
    target_language: str
    form: Form
    name: str = "translation"
    licence = "as stated by the owner of the text"

    def __post_init__(self) -> None:
        self.languages = (self.source_language, self.target_language)
        for side, code in zip(("source", "target"), self.languages, strict=True):
            language_of(code, f"task.corpus.{side}_language")
        if self.source_language == self.target_language:
            raise UserError(
                f"task.corpus.source_language and target_language are both {self.source_language}: "
                "set different codes, which are also the files' suffixes"
            )
        if self.data_dir is None:
            files = ", ".join(f"{split}.{x}" for split in REQUIRED for x in self.languages)
            raise UserError(f"set data_dir=FOLDER to a folder with {files}")
        self._folder = Path(self.data_dir).expanduser()
        self.label = self._folder.resolve().name

    def read(self) -> dict[str, ParallelText]:
        texts = {split: read_parallel(self._folder, split, self.languages) for split in REQUIRED}
        for split, text in texts.items():
            for code, lines in zip(self.languages, (text.source, text.target), strict=True):
                check_script(lines, language_of(code, "languages"), f"{split}.{code}")
        return texts

    def files(self) -> Mapping[str, Path]:
        return files_of(self._folder, REQUIRED, self.languages)
