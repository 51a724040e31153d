"""Lists all keys with their default, allowed values and meaning.

The default and the meaning are in the files of `configs/` (see `comments.py`). Nothing here imports
torch.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from normlab.config.comments import explained_keys
from normlab.config.experiments import EXPERIMENT
from normlab.config.folders import CONFIG_DIR
from normlab.config.schema import KEYS, SHORT, TRACKERS, key_of, top_level_keys


class ConfigKey(NamedTuple):
    """A dotted key, its default (empty for a key of an option), allowed values and meaning."""

    name: str
    default: str
    allowed: str
    description: str


def config_keys() -> list[ConfigKey]:
    """Return the keys of every run, in the order of the config file, then the keys of options."""
    explained: dict[str, tuple[str, str]] = {**explained_keys(CONFIG_DIR / "config.yaml")}
    for file in ("model/gpt2.yaml", "model/llama.yaml"):  # they explain the keys of every stack
        comments = {key: text for key, (_, text) in explained_keys(CONFIG_DIR / file).items()}
        explained |= {f"model.{key}": ("", text) for key, text in comments.items() if text}
    every: list[ConfigKey] = []
    of_options = sorted(name for name, facts in KEYS.items() if facts.range or facts.newer)
    for name in dict.fromkeys([*top_level_keys(), *of_options]):
        (default, comment), limits = explained.get(name, ("", "")), key_of(name).range
        every.append(ConfigKey(name, default, limits.allowed if limits else "", comment))
    return [*_short_keys({key.name: key for key in every}), *every]


def _short_keys(known: Mapping[str, ConfigKey]) -> Iterator[ConfigKey]:
    """Yield the short keys, and the keys of W&B and TensorBoard."""
    for name, long in SHORT.items():
        key = known[long]
        yield ConfigKey(name, key.default, key.allowed, f"short for {long}")
    yield ConfigKey(EXPERIMENT, "null", "", "an experiment; normlab list experiments shows all")
    for name in TRACKERS:
        yield ConfigKey(name, "false", "true, false", f"adds the sink {name}")
        file = CONFIG_DIR / "sink" / f"{name}.yaml"
        for setting, (default, comment) in explained_keys(file).items():
            if not setting.startswith("_"):
                yield ConfigKey(f"{name}.{setting}", default, "", comment)
