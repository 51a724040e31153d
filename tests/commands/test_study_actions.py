"""The arguments of `normlab study`."""

import pytest

from normlab.commands._study_actions import parser, read_time


def test_a_time_budget_is_a_number_and_a_unit(capsys):
    assert [read_time(text) for text in ("90m", "2.5h", "45s", "1 h")] == [5400, 9000, 45, 3600]
    for text in ("90", "h", "-1h", "0h", "2.5 years"):
        with pytest.raises(SystemExit):
            parser("run").parse_args(["one", f"--budget={text}"])
        assert "such as 90m or 2.5h" in capsys.readouterr().err
