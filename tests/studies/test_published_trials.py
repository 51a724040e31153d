"""Published choices of rates follow from published trials."""

from normlab.config.folders import CONFIG_DIR
from normlab.studies.load import load_study
from normlab.studies.published_trials import page_text, read
from normlab.studies.trials import best_value, sign_of


def test_published_choices_follow_from_their_trials():
    """Every tuning.json in results/ makes the same choices as the current code."""
    checked = 0
    for path in sorted((CONFIG_DIR.parent / "results").glob("*/tuning.json")):
        scales = load_study(path.parent.name).scales
        for scale, found in read(path).items():
            assert scale in scales, (path, scale)
            sign = sign_of(found["tuning"]["score"])
            for row in found["rows"]:
                scores = {trial["value"]: trial["score"] for trial in row["trials"]}
                whole = len(scores) == len(found["tuning"]["values"])
                chosen = best_value(scores, sign) if whole else None
                assert row["chosen"] == chosen, (path, scale, row["row"])
                checked += 1
    assert checked > 50


def test_published_pages_show_their_trials():
    """Every tuning.md in results/ is what the current code writes."""
    pages = sorted((CONFIG_DIR.parent / "results").glob("*/tuning.md"))
    for page in pages:
        study = page.parent.name
        assert page.read_text("utf-8") == page_text(study, read(page.with_suffix(".json"))), page
    assert len(pages) > 20
