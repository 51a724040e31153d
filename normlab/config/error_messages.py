"""Messages about keys and options that do not exist, and Hydra's errors as one line.

Nothing here imports torch, and only `setting_error` imports OmegaConf.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches

from normlab.config.folders import groups, of_your_own
from normlab.config.keys import MISSING
from normlab.config.registry import NORM_WORDS, norm_name, option_names, options_with
from normlab.config.schema import NORM_KEYS, OPTIONS, SHORT, TRACKERS, key_of, top_level_keys
from normlab.config.suggestions import choice_of, did_you_mean, squeezed, suggestion
from normlab.config.value_range import Range
from normlab.errors import SettingError, UserError

_ALIASES: Mapping[str, Mapping[str, str]] = {
    "norm": NORM_WORDS | {f"{word}norm": name for word, name in NORM_WORDS.items()},
    "task": dict(bert="mlm", gpt="lm"),
}
_SPAN = re.compile(r"(\d{1,9})(?:\.\.+|:|-)(\d{1,9})")  # such as 1..3
_LACKING_GROUP = re.compile(r"In '(\w+)/(\w+)': Could not override '([\w/@]+)'")  # Hydra's words
_MOST = 3  # maximum number of suggestions


def run_groups() -> list[str]:
    """Return the groups from which runs choose options, and the `norm@` keys."""
    kinds = [group for group in groups() if group not in ("article", "claim", "study")]
    return [*kinds, *(f"norm@{key}" for key in NORM_KEYS[1:])]


def is_group(key: str) -> bool:
    """Return whether a key such as `norm@encoder_norm` or `hydra/launcher` chooses an option."""
    return key.startswith("hydra/") or key in run_groups()


def no_such_key(key: str) -> str:
    """Return the message for an unknown key."""
    return f"{key} does not exist; normlab train --cfg job shows all keys.{meant(key)}"


def empty_path(key: str) -> str:
    """Return the message for an empty path. As a folder, it would be the current folder."""
    return f"{key}= is empty, but must be a path; is a shell variable unset?"


def is_looked_up(value: str) -> bool:
    """Return whether Hydra would replace a value by another key's, or by the environment's."""
    return "${" in value or value == MISSING


def looked_up(setting: str) -> str:
    """Return the message for a value that Hydra would look up."""
    return f"{setting}: write the value itself; a run may not look it up (${{...}}, ???)"


def meant(key: str) -> str:
    """Return ` Did you mean ...?` for an unknown key, or "" if no key is similar.

    If other options of the group have the key, the text names those options instead.
    """
    node, _, last = key.partition(".")
    if last and (having := options_with(node).get(last)):
        return f" {node}={', '.join(having)} {'has' if len(having) == 1 else 'have'} it."
    words: dict[str, list[str]] = {}
    for name in _known_keys():
        words.setdefault(name.rpartition(".")[2], []).append(name)
    near = get_close_matches(key.rpartition(".")[2], words, n=_MOST, cutoff=0.7)
    keys = dict.fromkeys(name for word in near for name in words[word])
    # Suggest a short key or the key it stands for, not both.
    long = {SHORT[name] for name in keys if name in SHORT}
    return suggestion([name for name in keys if name not in (SHORT if last else long)][:_MOST])


def _known_keys() -> list[str]:
    """Return the keys that a command line may set: short keys, groups, and keys of options."""
    of_options = [f"{node}.{name}" for node in (*OPTIONS, "norm") for name in options_with(node)]
    return [*SHORT, *TRACKERS, *run_groups(), *top_level_keys(), *of_options]


def as_setting(flag: str, following: str = "") -> str:
    """Return how to write a key that was written as a flag: `--norm bn` is `norm=bn`.

    `following` is the argument after the flag.
    """
    name, _, value = flag.lstrip("-").partition("=")
    if (key := name.replace("-", "_")) not in _known_keys():
        return f"write settings as key=value.{meant(key)}"
    if not value:
        value = "VALUE" if following.startswith("-") or "=" in following else following or "VALUE"
    return f"write {key}={value}"


def setting_of(words: Sequence[str]) -> str:
    """Return the setting that some words stand for, or "" if they are not options of one group.

    `ln` and `BatchNorm` are `norm=ln,bn`. A single setting stands for itself.
    """
    key, equals, _ = "".join(words).partition("=")
    if equals and len(words) == 1:
        return words[0] if key in _known_keys() else ""
    for group in run_groups() if words else ():
        names = [norm_name(word) if group == "norm" else word for word in words]
        if {*names} <= {*option_names(group)}:
            return f"{group}={','.join(names)}"
    return ""


def not_allowed(key: str, value: object, limits: Range) -> str:
    """Return what is wrong with a value that is not in the range of its key."""
    if not limits.is_only_numbers or not isinstance(value, str) or _is_number(value):
        return f"must be {limits.allowed}"
    problem = f"is not a number; it must be {limits.allowed}"
    if (span := _SPAN.fullmatch(value)) and (first := int(span[1])) < (last := int(span[2])):
        problem += f". For a run with each: normlab train -m '{key}=range({first},{last + 1})'"
    return problem


def _is_number(text: str) -> bool:
    """Return whether a text is a number, or nan or inf."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def no_option(group: str, option: str) -> str:
    """Return the message for an unknown option, with all options or the package to install.

    An option of another group is suggested as a setting of that group.
    """
    if group.startswith("hydra/"):
        package = f"hydra-{option.partition('_')[0]}-{group.rpartition('/')[2]}"
        return f"{group}={option} is not installed: pip install -c constraints.txt {package}"
    known = option_names(group)
    aliases = {word: name for word, name in _ALIASES.get(group, {}).items() if name in known}
    exact = [aliases[word] for word in [squeezed(option)] if word in aliases]
    if option != "none":
        exact += [f"{each}={option}" for each in run_groups() if option in option_names(each)]
    near = suggestion(exact[:_MOST]) or did_you_mean(option, known, aliases=aliases)
    choice = choice_of(known, _listing(group), near)
    return f"{option!r:.60} is not an option of the group {group!r}{choice}.{of_your_own()}"


def _listing(group: str) -> str:
    """Return the command that lists the options of a group, such as `normlab list norms`."""
    plural = f"{group[:-1]}ies" if group.endswith("y") else f"{group}s"
    return f"normlab list {group if '/' in group else plural}"


def setting_error(error: Exception, typed: Collection[str] = ()) -> SettingError:
    """Return a Hydra or OmegaConf error as one line, with the key and the allowed values.

    For a missing key such as `task.source.size`, OmegaConf may name only the missing node,
    `task.source`. The full key is then looked up in `typed`, the keys on the command line.
    """
    from omegaconf import errors

    if missing := getattr(error, "missing_cfg_file", None):  # Hydra's MissingConfigException
        group, _, option = missing.removesuffix(".yaml").rpartition("/")
        return SettingError(no_option(group, option), group)
    causes = (error, error.__cause__, error.__context__)  # Hydra wraps OmegaConf's
    cause = next((e for e in causes if isinstance(e, errors.OmegaConfBaseException)), None)
    if cause is None or not (key := cause.full_key):
        message = "; ".join(filter(None, map(str.strip, str(error).splitlines())))
        if unfit := _LACKING_GROUP.match(message):
            group, option, lacking = unfit.groups()
            problem = f"{group}={option} sets {lacking}, which this run does not have"
            return SettingError(f"{problem}; choose another {group}", group)
        return SettingError(message)
    if isinstance(cause, errors.ConfigAttributeError | errors.ConfigKeyError):
        key = next((name for name in typed if name.startswith(f"{key}.")), key)
    return SettingError(_problem(cause, key), key)


def _problem(cause: Exception, key: str) -> str:
    """Return OmegaConf's message about what is wrong with a key."""
    from omegaconf import errors

    if isinstance(cause, errors.ConfigAttributeError | errors.ConfigKeyError):
        if key.startswith("optim.groups"):
            return f"{key} must be added with a plus sign: +{key}=VALUE"
        return no_such_key(key)
    if isinstance(cause, errors.MissingMandatoryValue):
        return f"{key} is missing; set {key}=VALUE"
    problem = str(cause).splitlines()[0]  # the other lines name the key and OmegaConf's types
    limits = key_of(key).range
    if isinstance(cause, errors.ValidationError) and limits is not None:
        return f"{key}={cause.value} {not_allowed(key, cause.value, limits)}"
    return problem if key in problem else f"{key}: {problem}"


def check_option(group: str, option: str) -> None:
    """Raise UserError, with the group's options, if an option does not exist."""
    if option not in option_names(group):
        raise UserError(no_option(group, option))
