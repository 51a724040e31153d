"""Multi30k task 1: German-English image captions (Elliott et al. 2016), 29,000 training pairs.

`test` is 2016 Flickr, as in the literature. Checksums identify the published text.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from normlab.data.corpus import GermanEnglish, ParallelText
from normlab.data.hub import load_tables
from normlab.data.text_files import files_of, find_text, read_parallel

HUB = "bentrevett/multi30k"
# SHA-256 of the checksums (see `ParallelText`) of train, valid and test, each as de, en.
PUBLISHED = "b3bff33194563aea0e5208da88b944c4ec4c23b742c5cd9e0ecebe084e772acb"
FILES = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
TEST_2017, FILE_2017 = "test_2017", "test_2017_flickr"  # the hub does not have this split
HUB_SPLITS = {"train": "train", "validation": "valid", "test": "test"}


@dataclass(kw_only=True, eq=False)
class Multi30k(GermanEnglish):
    """Multi30k from the hub or a folder with `{train,val,test_2016_flickr,...}.{de,en}[.gz]`."""

    name = "multi30k"
    licence = "non-commercial research and education (Flickr30k captions)"
    form = "raw"

    @property
    def label(self) -> str:
        """The name in result tables, which is plain Multi30k only for the published text."""
        order = 1 if self.languages[0] == "de" else -1
        text = " ".join(x for split in FILES for x in self.splits[split].checksums()[::order])
        published = hashlib.sha256(text.encode()).hexdigest() == PUBLISHED
        return "Multi30k" if published else "Multi30k, not the published text"

    def files(self) -> Mapping[str, Path]:
        if self.data_dir is None:
            return {}
        folder, stems = self._folder_and_stems()
        return files_of(folder, stems.values(), self.languages)

    def read(self) -> dict[str, ParallelText]:
        if self.data_dir is None:
            tables = load_tables(HUB, files="train, val and test_2016_flickr as .de and .en")

            def lines(split: str, language: str) -> list[str]:
                return [str(x).strip().replace("\n", " ") for x in tables[split][language]]

            return {
                ours: ParallelText(*(lines(theirs, language) for language in self.languages))
                for theirs, ours in HUB_SPLITS.items()
            }
        folder, stems = self._folder_and_stems()
        return {x: read_parallel(folder, stem, self.languages) for x, stem in stems.items()}

    def _folder_and_stems(self) -> tuple[Path, dict[str, str]]:
        """Return the folder of the text, and the stem of the files of each split."""
        assert self.data_dir is not None, "the hub has no folder"
        # A folder that holds several corpora has Multi30k in the subfolder `multi30k`.
        folder = Path(self.data_dir).expanduser()
        folder = folder / self.name if (folder / self.name).is_dir() else folder
        more = {TEST_2017: FILE_2017} if find_text(folder, f"{FILE_2017}.de") else {}
        return folder, FILES | more
