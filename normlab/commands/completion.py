"""`normlab completion`: the tab key in bash (4 and later) and zsh.

The printed script asks `normlab completion candidates` at each press of the key, so it knows a new
norm as soon as its file exists. Hydra's own completion is not used: it composes the whole config.
"""

import argparse
import importlib
import re
from pathlib import Path

from normlab import commands, registry
from normlab.commands._help import HelpFormatter

HELP = "print a script that completes commands, groups and options in bash or zsh"

_EXAMPLES = """to use it in this shell:
  eval "$(normlab completion bash)"
  eval "$(normlab completion zsh)"
Put the line into ~/.bashrc or, after `compinit`, into ~/.zshrc to have it in every shell.
"""

# The candidates are whole arguments, but Bash counts `=` and `:` as ends of words and replaces only
# what follows the last of them. An `@` begins a host name to it, which it replaces with the `@`.
_BASH = r"""_normlab() {
    local line=${COMP_LINE:0:COMP_POINT} words current breaks kept=""
    read -r -a words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    current=${words[-1]}
    breaks=${COMP_WORDBREAKS//[^=:]/}
    [[ -n $breaks && $current == *["$breaks"]* ]] && kept=${current%"${current##*["$breaks"]}"}
    [[ $COMP_WORDBREAKS == *@* && ${current#"$kept"} == *@* ]] && kept=${current%@*}
    mapfile -t COMPREPLY < <("${words[0]}" completion candidates -- "${words[@]:1}" 2>/dev/null)
    COMPREPLY=("${COMPREPLY[@]#"$kept"}")
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
}
complete -o default -F _normlab normlab
"""
_ZSH = r"""_normlab() {
    local -a found
    found=(${(f)"$(${(Q)words[1]} completion candidates -- \
        "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)"})
    if (( ! $#found )); then
        _files
        return
    fi
    compadd -S '' -- ${(M)found:#*=}
    compadd -- ${found:#*=}
}
compdef _normlab normlab
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH}

# What the first argument of a command names, where that is an option of a group.
_FIRST_ARGUMENT = {"data": "task", "explain": "norm", "reproduce": "study", "report": "study"}
# Commands whose first argument is `norm`, and whether they then name norms that there are.
_NAMES_A_KIND = {"check": True, "new": False}
_WITHOUT_OVERRIDES = frozenset(
    {"claims", "compare", "completion", "doctor", "ls", "report", "samples"}
)
_OF_RUNS = frozenset({"compare", "eval", "generate", "inspect", "plot", "samples", "translate"})
_HYDRA_FLAGS = ("--cfg", "--help", "--multirun")


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        prog="normlab completion",
        description="Print a completion script for your shell.",
        epilog=_EXAMPLES,
        formatter_class=HelpFormatter,
    )
    result.add_argument("shell", choices=sorted(_SCRIPTS))
    return result


def main(argv: list[str]) -> int:
    """Print a script, or the candidates that a script asks for, one a line."""
    if argv[:2] == ["candidates", "--"]:
        for candidate in candidates(argv[2:]):
            print(candidate)
        return 0
    print(_SCRIPTS[parser().parse_args(argv).shell], end="")
    return 0


def candidates(words: list[str]) -> list[str]:
    """List what the last of the words after `normlab` can become, as whole words.

    Empty where only the shell can know, as for a file.
    """
    current = words[-1] if words else ""
    if len(words) < 2:
        return _starting(current, commands.names())
    command = words[0]
    if current.startswith("-"):
        return _starting(current, _flags(command))
    if command == "completion":
        return _starting(current, sorted(_SCRIPTS))
    if command == "ls":
        return _starting(current, [*registry.groups(), "runs"])
    if command in _NAMES_A_KIND:
        if len(words) == 2:
            return _starting(current, ["norm"])
        there = _NAMES_A_KIND[command] and words[1] == "norm"
        return _starting(current, registry.option_names("norm")) if there else []
    found: list[str] = []
    if command in _FIRST_ARGUMENT and len(words) == 2:
        found = _starting(current, registry.option_names(_FIRST_ARGUMENT[command]))
    if command in _OF_RUNS:
        found += _runs(current)
    if command not in _WITHOUT_OVERRIDES:
        found += _overrides(current)
    return found


def _overrides(current: str) -> list[str]:
    key, equals, value = current.partition("=")
    bare = key.lstrip("+~")
    if not equals:
        known = [*registry.run_groups(), *registry.sites(), *registry.top_level_keys()]
        sign = key[: len(key) - len(bare)]
        return [f"{sign}{name}=" for name in _starting(bare, sorted(set(known)))]
    # Of a list, `norm=ln,b` or `probe=[spikes,p`, the last item is being typed.
    done = value[: max(value.rfind(","), value.rfind("[")) + 1]
    names = registry.option_names(bare.split("@")[0]) or _values(bare)
    return [f"{key}={done}{name}" for name in _starting(value[len(done) :], names)]


def _values(key: str) -> list[str]:
    """Return the values that a key of the schema may have, where they are words."""
    from enum import Enum
    from typing import get_type_hints

    from normlab.config import ObserveConfig, RunConfig, ValidateConfig

    node, _, name = key.rpartition(".")
    schema = {"": RunConfig, "observe": ObserveConfig, "validate": ValidateConfig}.get(node)
    kind = get_type_hints(schema).get(name) if schema else None
    if kind is bool:
        return ["true", "false"]
    return [*kind.__members__] if isinstance(kind, type) and issubclass(kind, Enum) else []


def _runs(current: str) -> list[str]:
    """Return the folders of runs that begin as what is typed, of experiments until one is whole."""
    root = Path("runs")
    whole = current.count("/") > 1
    found = root.glob("*/seed*") if whole else root.glob("*-*")
    return _starting(current, sorted(path.as_posix() + ("" if whole else "/") for path in found))


def _flags(command: str) -> list[str]:
    if command not in commands.names():
        return []
    module = importlib.import_module(f"normlab.commands.{command}")
    if not hasattr(module, "parser"):
        return list(_HYDRA_FLAGS)
    return ["--help", *re.findall(r"--[a-z][a-z-]*", module.parser().format_usage())]


def _starting(prefix: str, words: list[str]) -> list[str]:
    return [word for word in words if word.startswith(prefix)]
