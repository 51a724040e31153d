"""How the words at each position of a sentence are distributed: `python scripts/positions.py`.

Reads the text of public corpora in the folder that the environment variable NORMLAB_DATA names, and
writes results/positions/words.json: for the first four positions, the last one and all positions
together, how many words occur how often (enough to compute entropies), and the number of sentences
of each length. Words are split at spaces and otherwise unchanged.
"""

import gzip
import hashlib
import json
import os
import sys
from collections import Counter
from pathlib import Path

from normlab.records.files import atomic_write

PATH = Path(__file__).resolve().parents[1] / "results" / "positions" / "words.json"
FILES = {
    "Multi30k, English": "multi30k/train.en.gz",
    "Multi30k, German": "multi30k/train.de.gz",
    "Brown": "brown/brown.txt.gz",
    "IWSLT'14, English (validation)": "iwslt14_valid_test/valid.tok.en.gz",
}
FIRST = 4


def spectrum(words: Counter[str]) -> list[list[int]]:
    """Return how many words occur how often, as pairs (times, number of words)."""
    return [list(pair) for pair in sorted(Counter(words.values()).items())]


def corpus(path: Path) -> dict[str, object]:
    """Return a text's checksum, its sentence lengths, and the word counts of each position."""
    content = path.read_bytes()
    sentences = [line.split() for line in gzip.decompress(content).decode("utf-8").splitlines()]
    sentences = [words for words in sentences if words]
    places = {str(n): Counter(s[n - 1] for s in sentences if len(s) >= n) for n in range(1, 5)}
    places["last"] = Counter(words[-1] for words in sentences)
    places["all"] = Counter(word for words in sentences for word in words)
    return {
        "sha256": hashlib.sha256(content).hexdigest(),
        "sentences": len(sentences),
        "positions": {name: spectrum(words) for name, words in places.items()},
        "lengths": sorted(Counter(map(len, sentences)).items()),
        "most": {name: words.most_common(1)[0] for name, words in places.items()},
    }


def main() -> int:
    """Count all corpora and write the counts; return 1 without data."""
    data = os.environ.get("NORMLAB_DATA")
    if not data:
        print("set NORMLAB_DATA to the folder of the corpora", file=sys.stderr)
        return 1
    found = {name: corpus(Path(data) / file) for name, file in FILES.items()}
    PATH.parent.mkdir(exist_ok=True)
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(row)}" for name, row in found.items())
    with atomic_write(PATH) as file:
        file.write("{\n" + lines + "\n}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
