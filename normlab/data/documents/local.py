"""Documents in files of the user's own: `{train,valid,test}.txt`, or one text that is split here.

Decides the file names, what ends a document, and that text without splits is split by a hash of
each document's text.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from normlab.data.documents.corpus import (
    REQUIRED,
    Document,
    DocumentCorpus,
    TextForm,
    by_rank,
    read_documents,
    rules_digest,
    split_by_hash,
    splitter,
    stream_lines,
    update_digest,
    whole_document,
)

Boundary = Literal["blank_line", "file"]
_SUFFIXES = (".txt", ".txt.gz")


class FolderDocuments(DocumentCorpus):
    """Text of the user's own, UTF-8, plain or `.gz`.

    `data_dir` is a text file, or a folder with `train.txt`, `valid.txt`, `test.txt` (and further
    `test_<name>.txt`), or a folder of other `.txt` files. Without splits a hash of each document's
    text decides which it is in: about `valid_share` and `test_share` are held out, equal documents
    together. A folder `data_dir/<name>` goes first.

    `form` says what a line is: a sentence, or a paragraph whose sentences are found by rules for
    `language`. `boundary` says what ends a document: a blank line, or the file alone; then a blank
    line ends a paragraph, whose lines are joined. `name` is part of the experiment: runs on two
    texts of one name would be taken for the same.
    """

    licence = "as stated by the owner of the text"

    def __init__(
        self,
        data_dir: str | None,
        *,
        form: TextForm,
        boundary: Boundary,
        language: str,
        valid_share: float,
        test_share: float,
        name: str = "documents",
    ) -> None:
        if data_dir is None:
            raise ValueError(
                "this task reads your own text: set data_dir to a folder with train.txt, valid.txt "
                "and test.txt (plain or .gz), or to one file of documents with a blank line between"
            )
        self.name = name
        self.language = language
        place = Path(data_dir).expanduser()
        self._place = place / name if (place / name).is_dir() else place
        self.label = self._place.resolve().name.removesuffix(".gz").removesuffix(".txt")
        self._form: TextForm = form
        self._boundary: Boundary = boundary
        self._shares = {"valid_share": valid_share, "test_share": test_share}

    def split_names(self) -> Sequence[str]:
        """Return the splits that there are files for, or those that one text is cut into."""
        files = self._files()
        return REQUIRED if "all" in files else list(files)

    def stream(self) -> Iterator[tuple[str, Document]]:
        """Yield the documents of the files, one after the other."""
        files = self._files()
        if "all" not in files:
            for split in by_rank(files):
                for document in self._read(files[split]):
                    yield split, document
            return
        count = 0
        for document in self._read(files["all"]):
            count += 1
            yield split_by_hash(document.text, **self._shares), document
        if count < len(REQUIRED):
            raise ValueError(
                f"{self._place} holds {count} document(s), too few to split into "
                f"{', '.join(REQUIRED)}: {self._how_documents_end()}"
            )

    def key(self) -> str:
        """Return a string of the bytes of the files and of all that decides how they are cut."""
        digest = hashlib.sha256()
        for split, paths in self._files().items():
            for path in paths:
                digest.update(f"{split} {path.name} {path.stat().st_size}\n".encode())
                update_digest(digest, path)
        settings = (self._form, self._boundary, self.language, sorted(self._shares.items()))
        rules = rules_digest("local")
        return f"{self.name}-{digest.hexdigest()}-{settings}-{rules}-{splitter()}"

    def describe(self) -> dict[str, object]:
        """Add how the text was cut into splits, documents and sentences."""
        files = self._files()
        cut_here = {"split_by": "hash of the text", **self._shares} if "all" in files else {}
        return {
            **super().describe(),
            "form": self._form,
            "boundary": self._boundary,
            "sentences_by": "lines" if self._form == "sentences" else splitter(),
            "files": {split: [path.name for path in paths] for split, paths in files.items()},
            **cut_here,
        }

    def _read(self, paths: list[Path]) -> Iterator[Document]:
        read = read_documents if self._boundary == "blank_line" else whole_document
        for path in paths:
            found = False
            lines = stream_lines(path)
            for document in read(lines, form=self._form, language=self.language, origin=path.name):
                found = True
                yield document
            if not found:
                raise ValueError(f"{path} holds no sentence, only blank lines; give it text")

    def _files(self) -> dict[str, list[Path]]:
        """Return the files of each split, or those of `all` where the text has no splits."""
        if self._place.is_file():
            return {"all": [self._place]}
        if not self._place.is_dir():
            raise ValueError(f"no file or folder {self._place}; set data_dir to where the text is")
        texts = {
            path.name.removesuffix(".gz").removesuffix(".txt"): path
            for path in sorted(self._place.iterdir(), reverse=True)
            if path.name.endswith(_SUFFIXES) and path.is_file()
        }
        if not texts:
            held = ", ".join(sorted(path.name for path in self._place.iterdir())[:20])
            raise ValueError(
                f"{self._place} has no .txt or .txt.gz file; it holds {held or 'nothing'}. Set "
                "data_dir to a file, or to a folder with train.txt, valid.txt and test.txt"
            )
        present = [split for split in REQUIRED if split in texts]
        if not present:
            return {"all": [texts[name] for name in sorted(texts)]}
        missing = [split for split in REQUIRED if split not in texts]
        if missing:
            raise ValueError(
                f"{self._place} has {present[0]}.txt but neither {missing[0]}.txt nor "
                f"{missing[0]}.txt.gz; add the file, or give one file under another name, which is "
                "split by document"
            )
        further = sorted(name for name in texts if name.startswith("test_"))
        return {split: [texts[split]] for split in (*REQUIRED, *further)}

    def _how_documents_end(self) -> str:
        if self._boundary == "file":
            return "each file is one document; add files, or set boundary=blank_line"
        return (
            "there is no document boundary to split at, or hardly any. Put a blank line between "
            "documents, set boundary=file for a folder of documents, or give train.txt, valid.txt "
            "and test.txt"
        )
