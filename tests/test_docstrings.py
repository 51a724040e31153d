"""The summary of a docstring."""

from normlab.docstrings import summary


def test_a_summary_is_the_first_paragraph_on_one_line():
    def documented():
        """Return what is
        asked for.

        The rest is left out.
        """

    assert summary(documented) == "Return what is asked for."
    assert summary(lambda: None) == ""
