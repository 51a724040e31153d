"""Hydra's view of the folders with options: a source that parses each YAML file once per edit.

Hydra parses every file anew for each composition, in Python, which takes most of the time. Nothing
here imports torch.
"""

from pathlib import Path

import hydra
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.config_source import ConfigLoadError, ConfigResult
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from normlab.config.folders import CONFIG_DIR, folders
from normlab.config.registry import read_option

_SCHEME = "normlab"
_FOLDERS = {
    str(CONFIG_DIR): CONFIG_DIR,
    "pkg://hydra.conf": Path(hydra.__file__).parent / "conf",
}
"""The folders that are on Hydra's search path before `OptionFolders`, as Hydra writes them."""
_HEADER = 512  # characters in which Hydra looks for `# @package`


class OptionSource(FileConfigSource):
    """A folder of options, such as `configs/`, for Hydra."""

    @staticmethod
    def scheme() -> str:
        """Return the word before `://` in Hydra's search path."""
        return _SCHEME

    def load_config(self, config_path: str) -> ConfigResult:
        """Return what a file below the folder says, and its package; a copy, which Hydra edits."""
        path = Path(self.path, self._normalize_file_name(config_path))
        if not path.is_file():
            raise ConfigLoadError(f"Config not found : {path}")
        with path.open(encoding="utf-8") as file:
            header = self._get_header_dict(file.read(_HEADER))
        config = OmegaConf.create(dict(read_option(path)))
        return ConfigResult(
            provider=self.provider,
            path=f"{_SCHEME}://{self.path}",
            config=config,
            header=header,
        )


class OptionFolders(SearchPathPlugin):
    """Lets Hydra read `configs/` and the user's own folders by `OptionSource`."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append the user's own folders, and read all folders by `OptionSource`."""
        for element in search_path.get_path():
            if folder := _FOLDERS.get(element.path.removeprefix("file://")):
                element.path = f"{_SCHEME}://{folder}"
        for folder in folders()[1:]:
            search_path.append("normlab.options", f"{_SCHEME}://{folder}")
