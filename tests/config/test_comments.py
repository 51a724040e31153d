"""Comments of config files as descriptions of options and keys."""

from normlab.config.comments import description_in, explained_keys


def test_the_comment_at_the_top_describes_the_option_without_its_commands(tmp_path):
    (file := tmp_path / "bn.yaml").write_text(
        "# @package _here_\n# normlab train norm=bn\n# Batch norm (Ioffe et al. 2015), pooled\n"
        "# over all tokens. Keeps running statistics.\n#\n# More.\n_target_: a\n# not this\n"
    )
    summary, details = description_in(file)
    assert summary == "Batch norm (Ioffe et al. 2015), pooled over all tokens."
    assert details.endswith("Keeps running statistics.\n\nMore.")
    file.write_text("_target_: a\n")
    assert description_in(file) == ("", "")


def test_a_comment_after_a_key_explains_it(tmp_path):
    (file := tmp_path / "config.yaml").write_text(
        "seed: 1  # of all random numbers\nbudget:\n  steps: 3000  # updates\n  epochs: null\n"
    )
    assert explained_keys(file) == {
        "seed": ("1", "of all random numbers"),
        "budget": ("", ""),
        "budget.steps": ("3000", "updates"),
        "budget.epochs": ("null", ""),
    }
