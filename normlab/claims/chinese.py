"""Chinese texts for the claims' pages that are not in their templates."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from normlab.claims.ledger import JudgedPart


@cache
def _names() -> Mapping[str, str]:
    path = files("normlab.claims") / "templates" / "chinese_names.yaml"
    return yaml.safe_load(path.read_text("utf-8"))


def data_in_chinese(name: str) -> str:
    """Return the Chinese name of a study's data, or `name` itself if it is a proper name."""
    return _names().get(name, name)


def grade_in_chinese(outcome: "JudgedPart") -> str:
    """Return the grade with its setting in Chinese, such as `C：Multi30k 德译英，2+2 层`."""
    if not outcome.grade:
        return ""
    letter, setting = outcome.basis.grade, outcome.basis.setting
    data = data_in_chinese(setting.data)
    where = f"{data}，{' 到 '.join(setting.layers)} 层" if setting.layers else data
    return f"{letter}：{where}" if where else f"{letter}"
