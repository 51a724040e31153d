"""Composes the config of a run from `configs/` and command-line arguments, with Hydra.

In a run's config, the node of a group such as `norm` has the name and the values of its option.
Only the option's file names the class. The default recipe depends on task and scale, which Hydra
cannot express, so it is added before Hydra reads the overrides. Hydra would parse every file again
for each composition, which takes most of the time, so `OptionSource` caches each file until it is
edited. Nothing here imports torch.
"""

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import hydra
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from normlab.config.error_messages import setting_error
from normlab.config.experiments import EXPERIMENT, files_of, names_in, settings_in
from normlab.config.folders import CONFIG_DIR, folders, include_folders
from normlab.config.overrides import check_arguments, parsed, rewritten, typed
from normlab.config.registry import read_option
from normlab.config.run_config import to_dict
from normlab.config.schema import NEWER_OF_MODELS, WrittenConfig, full_key, is_of_tracker
from normlab.config.settle import default_recipe, settle
from normlab.config.trackers import with_trackers
from normlab.errors import SettingError, UserError

_ASK_FOR_RECIPES = ("task=", "scale=", f"{EXPERIMENT}=")
CONFIG_NAME, TASK = "config", "toy"  # configs/config.yaml, and its default task


def compose(overrides: Sequence[str] = ()) -> DictConfig:
    """Return the checked config of a run, and add folders in `include=FOLDER` to `NORMLAB_PATH`.

    Raise UserError with a one-line message if the config is invalid.
    """
    return compose_written(written_out(include_folders(overrides)))


def written_out(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a run in the form that Hydra reads.

    Raises UserError for a file without settings, for an unknown key of W&B or TensorBoard, and for
    arguments that `check_arguments` refuses.
    """
    words = rewritten(arguments)
    others = [text for text in words if not is_of_tracker(text.partition("=")[0])]
    if others != words:
        sinks = _sinks_of_runs(others)
        words = with_trackers(words, sinks) if sinks else others  # composing reports the problem
    check_arguments(words)
    return words


def compose_written(overrides: Sequence[str]) -> DictConfig:
    """Return the checked config of a run, from arguments that `written_out` returned."""
    try:
        return _checked(overrides)
    except SettingError as error:
        files = {} if EXPERIMENT in error.keys else _files_of_keys(overrides)
        path = next((files[key] for key in map(full_key, error.keys) if key in files), None)
        raise UserError(f"{path}: {error}" if path else str(error)) from error.__cause__


def _files_of_keys(overrides: Sequence[str]) -> dict[str, Path]:
    """Return the file of the experiment that sets each key or group.

    Keys that the command line sets are left out.
    """
    values = typed(overrides)
    names = names_in(values.pop(EXPERIMENT, None))
    decided = {*map(full_key, values)}
    return {key: path for key, path in files_of(names).items() if key not in decided}


def _checked(overrides: Sequence[str]) -> DictConfig:
    try:
        with configs_open():
            composed = hydra_compose(CONFIG_NAME, with_recipe(overrides), return_hydra_config=True)
        choices, overrides_of_task = composed.hydra.runtime.choices, composed.hydra.overrides.task
        with open_dict(composed):
            del composed["hydra"]
        return settle(composed, choices, overrides_of_task)
    except (HydraException, OmegaConfBaseException) as error:
        raise setting_error(error, typed(overrides)) from None


def from_hydra(config: DictConfig) -> DictConfig:
    """Return the checked config of a run, given the config that `hydra.main` passes on."""
    runtime = HydraConfig.get()
    return settle(config, runtime.runtime.choices, runtime.overrides.task)


def with_recipe(overrides: Sequence[str]) -> list[str]:
    """Return the overrides, with the default recipe added if they choose none.

    A sweep over tasks or scales gets none, because its runs have different default recipes.
    """
    options = {"task": TASK, **_of_experiments(overrides), **typed(overrides)}
    recipe = default_recipe(options["task"], options.get("scale"))
    if recipe is None or "recipe" in options:
        return [*overrides]
    # Insert it right before the override that needs it, so that Hydra's flags keep their values.
    place = next(n for n, text in enumerate(overrides) if text.startswith(_ASK_FOR_RECIPES))
    return [*overrides[:place], f"recipe={recipe}", *overrides[place:]]


def _of_experiments(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the option of each group that a run's experiments choose, as Hydra resolves them."""
    words = [text for text in overrides if text.startswith(f"{EXPERIMENT}=")]
    if not words or any(parsed(text).is_sweep_override() for text in words):
        return {}
    choices = defaults_list(words).overrides.known_choices
    return {key: name for key, name in choices.items() if name}


def _sinks_of_runs(overrides: Sequence[str]) -> list[list[str]]:
    """Return the sinks of each run of a sweep, or [] if the overrides cannot be read.

    They are chosen by the last `sink=` or, if there is none, by the experiments.
    """
    typed_sinks = [text for text in overrides if text.startswith("sink=")]
    choice = typed_sinks[-1:] or [text for text in overrides if text.startswith(f"{EXPERIMENT}=")]
    try:
        with configs_open():
            choices = [choice]
            parser = OverridesParser.create(GlobalHydra.instance().config_loader())  # for `glob(*)`
            for override in parser.parse_overrides(choice):
                if override.is_discrete_sweep():
                    key, values = override.get_key_element(), override.sweep_string_iterator()
                    choices = [[f"{key}={value}"] for value in values]
            return [_sinks_of_run(words) for words in choices]
    except (HydraException, OmegaConfBaseException, ValueError):
        return []


def _sinks_of_run(choice: Sequence[str]) -> list[str]:
    paths = [str(each.config_path) for each in defaults_list(choice).defaults]
    return [path.removeprefix("sink/") for path in paths if path.startswith("sink/")]


def shown_config(argv: Sequence[str]) -> str | None:
    """Return the text that `--cfg job` prints, or None if that flag is not set.

    Hydra itself would print the composed config before it is settled (see `settle.py`). A run's
    config has no interpolations, so `--resolve` changes nothing.
    """
    flags = ArgumentParser(add_help=False, allow_abbrev=False)
    flags.add_argument("--cfg", "-c")
    flags.add_argument("--package", "-p")
    flags.add_argument("--resolve", action="store_true")
    known, overrides = flags.parse_known_args(argv)
    if known.cfg != "job":
        return None
    if other := [text for text in overrides if text.startswith("-")]:
        raise UserError(f"--cfg job shows the config of one run; omit {other[0]}")
    config = OmegaConf.create(to_dict(compose_written(overrides)))
    part = OmegaConf.select(config, known.package) if known.package else config
    if not OmegaConf.is_config(part):
        raise UserError(f"--package {known.package}: the config does not have this part")
    return OmegaConf.to_yaml(part)


# The folders with options, as Hydra reads them ----------------------------------------------------

_SCHEMA, _NEWER = "normlab_schema", "normlab_newer"  # their names in configs/config.yaml
_SCHEME = "normlab"
_FOLDERS = {
    str(CONFIG_DIR): CONFIG_DIR,
    "pkg://hydra.conf": Path(hydra.__file__).parent / "conf",
}
"""The folders on Hydra's search path before `OptionFolders` changes it, by Hydra's names."""
_HEADER = 512  # number of characters, from the start, in which Hydra looks for `# @package`


class OptionSource(ConfigSource):
    """A folder of options, such as `configs/`, as Hydra reads it."""

    @staticmethod
    def scheme() -> str:
        """Return the scheme, the word before `://`, in Hydra's search path."""
        return _SCHEME

    def available(self) -> bool:
        """Return whether the folder exists."""
        return self.is_group("")

    def is_group(self, config_path: str) -> bool:
        """Return whether a folder exists inside this one."""
        return Path(self.path, config_path).is_dir()

    def is_config(self, config_path: str) -> bool:
        """Return whether a file exists."""
        return self._file(config_path).is_file()

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """Return the names of the groups and options in a group, for a sweep over `glob(*)`."""
        names: list[str] = []
        for path in Path(self.path, config_path).iterdir():
            below = f"{config_path}/{path.name}"
            self._list_add_result(names, below, path.name, results_filter)
        return sorted({*names})

    def load_config(self, config_path: str) -> ConfigResult:
        """Return a file's content and its package. Hydra edits the content, so this is a copy."""
        path = self._file(config_path)
        if not path.is_file():
            raise ConfigLoadError(f"{path} does not exist")
        with path.open(encoding="utf-8") as file:
            header = self._get_header_dict(file.read(_HEADER))
        content = dict(read_option(path))
        if config_path.startswith(f"{EXPERIMENT}/"):
            header["package"] = header["package"] or "_global_"
            content = settings_in(path, content)
        return ConfigResult(
            provider=self.provider,
            path=f"{_SCHEME}://{self.path}",
            config=OmegaConf.create(content),
            header=header,
        )

    def _file(self, config_path: str) -> Path:
        """Return the file of a config, such as `norm/bn` or `experiment//home/me/my.yaml`."""
        group, slash, outside = config_path.partition("//")
        if slash and group == EXPERIMENT:
            return Path("/", outside)
        return Path(self.path, self._normalize_file_name(config_path))


class OptionFolders(SearchPathPlugin):
    """Lets Hydra read `configs/` and the user's own folders through `OptionSource`."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append the user's own folders, and read all folders through `OptionSource`."""
        for element in search_path.get_path():
            if folder := _FOLDERS.get(element.path.removeprefix("file://")):
                element.path = f"{_SCHEME}://{folder}"
        for folder in folders()[1:]:
            search_path.append("normlab.options", f"{_SCHEME}://{folder}")


def register() -> None:
    """Make the schema, the newer keys and the folders of options known to Hydra."""
    store = ConfigStore.instance()
    if f"{_SCHEMA}.yaml" in store.repo:
        return
    store.store(_SCHEMA, node=WrittenConfig)
    newer = OmegaConf.create()
    for key, default in NEWER_OF_MODELS.items():
        OmegaConf.update(newer, key, default, force_add=True)
    store.store(_NEWER, node=newer)
    Plugins.instance().register(OptionSource)
    Plugins.instance().register(OptionFolders)


@contextmanager
def configs_open() -> Iterator[None]:
    """Let Hydra read `configs/` inside the context. On exit, restore the caller's use of Hydra."""
    register()
    caller = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
            yield
    finally:
        GlobalHydra.instance().hydra = caller


def defaults_list(overrides: Sequence[str]) -> Any:
    """Return Hydra's defaults list: the options from which it composes a run with overrides."""
    with configs_open() if GlobalHydra.instance().hydra is None else nullcontext():
        loader = GlobalHydra.instance().config_loader()
        return loader.compute_defaults_list(CONFIG_NAME, [*overrides], RunMode.RUN)
