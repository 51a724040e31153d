"""What all tests share: shape checks at run time, the real data, one thread."""

import os
from pathlib import Path

import pytest
from jaxtyping import install_import_hook

# Shapes and types of every function of the package are checked while tests run.
install_import_hook("normlab", "beartype.beartype")


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def normlab_data() -> Path:
    """Return the folder of real data; skip where there is none."""
    folder = os.environ.get("NORMLAB_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("NORMLAB_DATA does not name the folder of real data")
    return Path(folder).resolve()


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory):
    """Keep prepared data of tests out of the user's cache."""
    os.environ["NORMLAB_CACHE"] = str(tmp_path_factory.mktemp("cache"))
