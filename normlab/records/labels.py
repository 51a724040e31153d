"""Labels of a run's norms, placement, batch and corpus, and escaping of text for output.

Names, reasons and signatures come from records, which may be untrusted. A control character could
clear a terminal or hide a line, a newline could add a row to a table, and a leading `=` would turn
a cell into a formula. Therefore use these functions for all text in a terminal, page or sheet.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

from normlab.config.schema import STACK_NORMS, STEP_NORMS
from normlab.formats import CONTROL

_MARKUP = re.compile(r"<(?=[A-Za-z/!?])")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def norm_label(choices: Mapping[str, Any]) -> str:
    """Return the label of a model's norms: `bn`, `bn+ln` (encoder+decoder), `ln+ffn_inner_bn`."""
    return "+".join(norms_of(choices))


def norms_of(choices: Mapping[str, Any]) -> list[str]:
    """Return the norms in a label.

    A stack uses the model's norm unless its own is set. Extra norms follow by name
    (`bn+cell_none` in a recurrent model), and then the overrides by module path (`ln+self_bn`). A
    config without norms has the single entry `-`.
    """
    norm = choices.get("norm")
    parts = [*dict.fromkeys(choices.get(site) or norm for site in STACK_NORMS)]
    for site in sorted(key for key in choices if key.endswith("_norm") and key not in STACK_NORMS):
        if choices[site] not in (None, norm if site in STEP_NORMS else "none"):
            parts.append(f"{site.removesuffix('_norm')}_{choices[site]}")
    parts.append(choices.get("sites"))
    return [str(part) for part in parts if part is not None] or ["-"]


def placement_label(choices: Mapping[str, Any], config: Mapping[str, Any]) -> str | None:
    """Return a run's placement, or None if it need not be shown.

    That is so for a run without a placement, and for the default in a model without attention.
    """
    placement, model = choices.get("placement"), _node(config, "model")
    if placement is None or (placement == "pre" and model and "num_heads" not in model):
        return None
    return str(placement)


def batch_label(config: Mapping[str, Any]) -> str:
    """Return the label of a batch: `b32` (sequences), `4096tok`, `4x4096tok` or `-`."""
    size, tokens, accumulate = map(config.get, ("batch_size", "max_tokens", "accumulate"))
    if size is None and tokens is None:
        return "-"
    batch = f"b{size}" if size is not None else f"{tokens}tok"
    return batch if (accumulate or 1) == 1 else f"{accumulate}x{batch}"


def corpus_label(config: Mapping[str, Any]) -> str | None:
    """Return the corpus, such as `brown`, if the task has several, otherwise None."""
    choices, corpus = _node(config, "choices"), _node(_node(config, "task"), "corpus")
    label = corpus.get("name") or choices.get("task/corpus")
    return None if label is None or label == choices.get("task") else str(label)


def _node(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the mapping at a key, or an empty mapping if there is none."""
    node = config.get(key)
    return cast("Mapping[str, Any]", node) if isinstance(node, Mapping) else {}


def printable(text: str) -> str:
    r"""Return text with control characters except tab and newline escaped, such as `\x1b`."""
    return CONTROL.sub(lambda each: each[0] if each[0] in "\t\n" else repr(each[0])[1:-1], text)


def one_line(text: str) -> str:
    """Return text with control characters escaped, on one line."""
    return text if text.isprintable() else printable(re.sub(r"\s+", " ", text))


def in_prose(text: str) -> str:
    """Return text for a line of Markdown, with tags escaped."""
    return _MARKUP.sub("&lt;", one_line(text))


def in_markdown(text: str) -> str:
    """Return text for a cell of a Markdown table, with tags and cell borders escaped."""
    return in_prose(text).replace("|", r"\|")


def in_sheet(value: object) -> object:
    """Return a value for a CSV cell, with a quote before text that would be a formula."""
    if not isinstance(value, str):
        return value
    text = one_line(value)
    return f"'{text}" if len(text) > 1 and text.startswith(_FORMULA) else text
