"""The claims that the package of checks lists for each of its modules."""

import re
from collections import defaultdict
from pathlib import Path

from normlab import claim_checks
from normlab.config.folders import CONFIG_DIR

FOLDER = Path(claim_checks.__file__).parent


def file_of_check():
    """Return the file that holds each check, by the check's name."""
    return {
        name: path.name
        for path in FOLDER.glob("[a-z]*.py")
        for name in re.findall(r'^@check\("([a-z_0-9.]+)"\)', path.read_text("utf-8"), re.M)
    }


def test_the_name_of_a_check_begins_with_the_name_of_its_file():
    files = file_of_check()
    assert len(files) > 40 and files["outlier.softmax"] == "outlier.py"
    assert {name: file for name, file in files.items() if f"{name.split('.')[0]}.py" != file} == {}
    assert files.keys() == {each.name for each in claim_checks.checks()}


def test_each_module_is_listed_with_the_claims_that_name_its_checks():
    checks = file_of_check()
    claims = defaultdict(set)
    for path in (CONFIG_DIR / "claim").glob("*.yaml"):
        for name in re.findall(r"check: ([a-z_]+\.[a-z_0-9]+)", path.read_text("utf-8")):
            claims[checks[name]].add(int(path.name.partition("_")[0]))
    listed = re.findall(r"^    (\w+\.py) +(\d+(?:, \d+)*) ", claim_checks.__doc__ or "", re.M)
    assert {name: [*map(int, numbers.split(", "))] for name, numbers in listed} == {
        name: sorted(numbers) for name, numbers in claims.items()
    }
