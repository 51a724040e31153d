"""The names of the sides that parts of claims compare."""

from normlab.claims.claim import load_all
from normlab.claims.endpoint import StudyEndpoint
from normlab.config.folders import CONFIG_DIR


def test_every_side_that_a_part_compares_has_a_name_in_both_languages():
    """A missing name would be shown as typed, `norm=bn`, in the middle of a sentence."""
    sides = [
        (claim.path, name)
        for claim in load_all(CONFIG_DIR / "claim")
        for each in claim.parts
        if isinstance(each.endpoint, StudyEndpoint) and len(each.endpoint.sides) > 1
        for side in each.endpoint.named_sides
        for name in filter(None, (side.name, side.condition))
    ]
    assert len(sides) > 150
    assert [(path, name) for path, name in sides if "=" in "".join(name)] == []
