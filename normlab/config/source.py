"""Hydra's view of the folders with options: a source that caches each file until it is edited.

Hydra parses every file again for each composition, in Python, which takes most of the time. Nothing
here imports torch.
"""

from pathlib import Path

import hydra
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.config_source import ConfigLoadError, ConfigResult
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from normlab.config.experiments import EXPERIMENT, settings_in
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

    def is_config(self, config_path: str) -> bool:
        """Return whether there is such a file."""
        return self._file(config_path).is_file()

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
