"""Generate the pages of the reference from schema, registry and help texts."""

import ast
import os
import re
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from importlib import import_module
from io import StringIO

from normlab import commands
from normlab.config import folders, registry
from normlab.config.key_list import ConfigKey, config_keys
from normlab.metrics.glossary import PROBES, SCORES, Metric

_TARGET = re.compile(r"^_target_: (normlab(?:\.\w+)+)\.\w+$", re.MULTILINE)
_WIDE = "---\nhide: [toc]\n---"
_ACTIONS = re.compile(r"usage: normlab \w+ \[-h\] \{?([a-z]+(?:[|,][a-z]+)+)")
_EXPLAINED = ("norm", "placement")
"""Groups whose module docstrings start with a wiring or a formula."""
_CONDITIONS = {
    "valid/, test/, test_2017/": "the split",
    "best_loss/, best_bleu/": "of the weights that were best by that validation score",
    "batch_size_8/": "tested at that batch size",
    "eval_stats_batch/": "tested with these statistics of norms that pool the batch",
    "noise_0.4/": "tested with Gaussian noise on the input, of that many of its deviations",
    "weight_noise_0.01/": "tested with noise on the weights, of that share of a matrix's size",
    "brightness_0.5/": "tested on images with all pixels times that factor",
    "seen/": "of training examples, in evaluation mode",
    "length_33_64/": "examples of these lengths alone, in tokens",
    "one_by_one/": "one token at a time",
    "steps_to/mlm_accuracy_0.2": "which score, and which value of it",
}


def pages() -> dict[str, str]:
    """Return the pages in Markdown by their place below docs/."""
    return {
        "reference/keys.md": _keys(),
        "reference/options.md": _options(),
        "reference/scores.md": _scores(),
        "reference/probes.md": _probes(),
        "reference/commands.md": _commands(),
    }


def _keys() -> str:
    listed = config_keys()
    own = [_key(key) for key in listed if key.default]
    options = [_key(key) for key in listed if not key.default]
    return _page(
        _WIDE,
        "# Keys",
        "Any of them is `key=value` on the command line: `normlab train budget.steps=500`.",
        "## Of every run",
        _table(["key", "default", "allowed", "what it is"], own),
        "## Of options",
        "Their defaults are those of the [option](options.md).",
        _table(["key", "allowed", "what it is"], [[name, *rest] for name, _, *rest in options]),
    )


def _key(key: ConfigKey) -> list[str]:
    return [f"`{key.name}`", f"`{key.default}`", key.allowed, key.description]


def _options() -> str:
    parts = [
        "# Options",
        "An option is a file of `configs/`, chosen as `group=option`. The first sentence is what "
        "`normlab list GROUP` says; values are changed as `group.key=value`.",
    ]
    for group in folders.groups():
        if group in ("claim", "study"):
            continue
        parts.append(f"## {group}")
        for option in registry.options(group):
            text = option.path.read_text("utf-8")
            parts += [f"### {group}={option.name}", _escaped(option.details)]
            if option.pools_over:
                parts.append(f"Pools over {option.pools_over}.")
            if commands := re.findall(r"^# (normlab .*)$", text, re.MULTILINE):
                parts.append(_code("\n".join(commands), "bash"))
            if group in _EXPLAINED and (doc := _opening(text)):
                parts.append(_code(doc))
            parts.append(_code(_values(text), "yaml"))
    for group in ("study", "claim"):
        rows = [[f"`{o.name}`", _escaped(o.description)] for o in registry.options(group)]
        parts += [f"## {group}", _table(["name", "what it asks"], rows)]
    return _page(*parts)


def _scores() -> str:
    rows = [[f"`{path}`", what] for path, what in _CONDITIONS.items()]
    return _page(
        _WIDE,
        "# Scores",
        "A score is a path such as `test/bleu`; a record keeps value, direction, what it was "
        "counted over, and the signature of the scorer.",
        _meanings(SCORES),
        "## Parts of a path",
        _table(["part", "what it says"], rows),
    )


def _probes() -> str:
    parts = [
        "# Probes",
        "Figures are `stability/<probe>/<figure>`, means over the steps that were observed unless "
        "said otherwise; by place `stability/<probe>/<figure>/<place>`.",
    ]
    for option in registry.options("probe"):
        text = option.path.read_text("utf-8")
        own = {n: m for n, m in PROBES.items() if n.split("/")[0] == option.name}
        parts += [f"## {option.name}", _escaped(option.details)]
        if own:
            parts.append(_meanings(own))
        if doc := _opening(text):
            parts.append(_code(doc))
        parts.append(_code(_values(text), "yaml"))
    return _page(*parts)


def _commands() -> str:
    parts = ["# Commands"]
    for name in commands.DOES:
        text = _help(name)
        found = _ACTIONS.match(text)
        actions = re.split("[|,]", found[1]) if found else []
        parts += [f"## normlab {name}", *map(_code, [text, *(_help(name, a) for a in actions)])]
    return _page(*parts)


def _help(*names: str) -> str:
    os.environ["COLUMNS"] = "80"
    out = StringIO()
    with redirect_stdout(out), suppress(SystemExit):
        import_module(f"normlab.commands.{names[0]}").main([*names[1:], "--help"])
    return out.getvalue()


def _opening(config: str) -> str:
    """Return the docstring of the module of an option's class, without importing the module."""
    found = _TARGET.search(config)
    if found is None:
        return ""
    path = folders.CONFIG_DIR.parent.joinpath(*found[1].split(".")).with_suffix(".py")
    return ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""


def _values(config: str) -> str:
    """Return a config without the comment at its start."""
    lines = config.splitlines()
    first = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return "\n".join(lines[first:])


def _meanings(figures: Mapping[str, Metric]) -> str:
    rows = [
        [f"`{key}`", m.name, m.whole_unit, m.better, _escaped(m.what), m.source]
        for key, m in figures.items()
    ]
    return _table(["figure", "name", "unit", "better", "what it is", "source"], rows)


def _page(*parts: str) -> str:
    return "\n\n".join(parts) + "\n"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines
    )


def _code(text: str, language: str = "text") -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def _escaped(text: str) -> str:
    return re.sub(r"([*_<>\[\]])", r"\\\1", text)
