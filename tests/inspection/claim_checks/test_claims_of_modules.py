"""The claims that the package of checks lists for each of its modules."""

import re
from collections import defaultdict
from pathlib import Path

from normlab.config.folders import CONFIG_DIR
from normlab.inspection import claim_checks

FOLDER = Path(claim_checks.__file__).parent


def test_each_module_is_listed_with_the_claims_that_name_its_checks():
    checks = {
        name: path.name
        for path in FOLDER.glob("[a-z]*.py")
        for name in re.findall(r'^@check\("([a-z_0-9.]+)"\)', path.read_text("utf-8"), re.M)
    }
    claims = defaultdict(set)
    for path in (CONFIG_DIR / "claim").glob("*.yaml"):
        for name in re.findall(r"check: ([a-z_]+\.[a-z_0-9]+)", path.read_text("utf-8")):
            claims[checks[name]].add(int(path.name.partition("_")[0]))
    listed = re.findall(r"^    (\w+\.py) +(\d+(?:, \d+)*) ", claim_checks.__doc__ or "", re.M)
    assert {name: [*map(int, numbers.split(", "))] for name, numbers in listed} == {
        name: sorted(numbers) for name, numbers in claims.items()
    }
