"""Shared by all tests: shape checks, real data, a corpus, one thread, a browser, no deadlines."""

import os
import re
import shutil
import signal
import sys
from pathlib import Path

import hypothesis
import pytest

from tests import shape_checks

BROWSERS = ("chromium", "chromium-browser", "google-chrome")

shape_checks.install()

# No deadline per example, because the machine may be busy.
hypothesis.settings.register_profile("normlab", deadline=None)
hypothesis.settings.load_profile("normlab")

pytest_plugins = ["tests.training.wandb_client"]  # fixtures


# Tests send SIGHUP; a run ignores it if it was ignored from the start, as under `nohup`.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def normlab_data() -> Path:
    """Return the folder with real data; skip the test if there is none."""
    folder = os.environ.get("NORMLAB_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("NORMLAB_DATA does not name the folder of real data")
    return Path(folder).resolve()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of parallel text."""
    from tests.tiny_runs import write_corpus

    return write_corpus(tmp_path_factory.mktemp("corpus") / "text")


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory):
    """Keep data prepared by tests out of the user's cache."""
    os.environ["NORMLAB_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def _included_folders(tmp_path_factory):
    """Forget the option folders that a test's command included, and their modules."""
    from normlab.config.folders import _own_folders

    variable, path = os.environ.get("NORMLAB_PATH"), [*sys.path]
    yield
    os.environ.pop("NORMLAB_PATH", None)
    if variable is not None:
        os.environ["NORMLAB_PATH"] = variable
    sys.path[:] = path
    _own_folders.cache_clear()
    temporary = str(tmp_path_factory.getbasetemp())
    for name, module in [*sys.modules.items()]:
        if str(getattr(module, "__file__", None)).startswith(temporary):
            del sys.modules[name]


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser on PATH: {', '.join(BROWSERS)}")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=flags)
        yield opened
        opened.close()


@pytest.fixture
def visit(browser, path):
    """Return a function that opens the page at the module's fixture `path` from disk.

    Any error on the page, and any network request, fails the test.
    """
    contexts, complaints, loaded = [], [], []

    def opened(width=1280, *, scheme="light", scripts=True, fragment=""):
        context = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme=scheme,
            java_script_enabled=scripts,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: loaded.append(request.url))
        page.goto(path.as_uri() + fragment)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
    files = {re.split("[?#]", url)[0] for url in loaded if not url.startswith("blob:")}
    assert files == {path.as_uri()}
