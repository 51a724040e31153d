"""Write the generated blocks of README, docs and results, and the pages made from the ledger.

    python scripts/blocks.py            write what is outdated
    python scripts/blocks.py --check    write nothing; exit status 1 if something is outdated

`normlab.blocks` says what a block is; `normlab study verify` also compares them.
"""

import argparse
import sys

from normlab.advice.which_norm import WHICH_NORM, which_norm_page
from normlab.articles.pages import pages
from normlab.blocks import pages_with_blocks, regenerated
from normlab.config.folders import RESULTS
from normlab.records.manifest import stale, write_files


def main(argv: list[str] | None = None) -> int:
    """Write or check all blocks and pages."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args(argv).check
    texts = {page: regenerated(page, RESULTS) for page in pages_with_blocks(RESULTS)}
    texts |= {**pages(RESULTS), RESULTS / WHICH_NORM: which_norm_page(RESULTS)}
    outdated = stale(texts)
    for path in texts:
        state = "outdated" if check else "written"
        print(f"{path}: {state if path in outdated else 'up to date'}")
    if not check:
        write_files({path: texts[path] for path in outdated})
    return 1 if check and outdated else 0


if __name__ == "__main__":
    sys.exit(main())
