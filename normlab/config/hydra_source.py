"""Hydra's view of the folders with options: a source that caches each file until it is edited.

Hydra parses every file again for each composition, in Python, which takes most of the time. Nothing
here imports torch.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import hydra
from hydra import initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import RunMode
from omegaconf import OmegaConf

from normlab.config.experiments import EXPERIMENT, settings_in
from normlab.config.folders import CONFIG_DIR, folders
from normlab.config.registry import read_option
from normlab.config.schema import NEWER_OF_MODELS, WrittenConfig

CONFIG_NAME = "config"
_SCHEMA, _NEWER = "normlab_schema", "normlab_newer"  # their names in configs/config.yaml
_SCHEME = "normlab"
_FOLDERS = {
    str(CONFIG_DIR): CONFIG_DIR,
    "pkg://hydra.conf": Path(hydra.__file__).parent / "conf",
}
"""The folders that are on Hydra's search path before `OptionFolders`, as Hydra writes them."""
_HEADER = 512  # characters in which Hydra looks for `# @package`


class OptionSource(ConfigSource):
    """A folder of options, such as `configs/`, for Hydra."""

    @staticmethod
    def scheme() -> str:
        """Return the word before `://` in Hydra's search path."""
        return _SCHEME

    def available(self) -> bool:
        """Return whether the folder exists."""
        return self.is_group("")

    def is_group(self, config_path: str) -> bool:
        """Return whether there is such a folder below this one."""
        return Path(self.path, config_path).is_dir()

    def is_config(self, config_path: str) -> bool:
        """Return whether there is such a file."""
        return self._file(config_path).is_file()

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """Return the names of the groups and options in a group, for a sweep over `glob(*)`."""
        names: list[str] = []
        for path in Path(self.path, config_path).iterdir():
            below = f"{config_path}/{path.name}"
            self._list_add_result(names, below, path.name, results_filter)
        return sorted({*names})

    def load_config(self, config_path: str) -> ConfigResult:
        """Return a copy of a file's content, which Hydra then edits, and its package."""
        path = self._file(config_path)
        if not path.is_file():
            raise ConfigLoadError(f"Config not found : {path}")
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
    """Register the schema, newer keys and the folders with options with Hydra."""
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
    """Let Hydra read `configs/` in the block; a caller that uses Hydra itself keeps its state."""
    register()
    caller = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
            yield
    finally:
        GlobalHydra.instance().hydra = caller


def defaults_list(overrides: Sequence[str]) -> Any:
    """Return Hydra's list of the options from which it composes a run with these overrides."""
    with configs_open() if GlobalHydra.instance().hydra is None else nullcontext():
        loader = GlobalHydra.instance().config_loader()
        return loader.compute_defaults_list(CONFIG_NAME, [*overrides], RunMode.RUN)
