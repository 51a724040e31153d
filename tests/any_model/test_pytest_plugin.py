"""`pytest --normlab-model=MODEL` has one test per question."""

import sys

import pytest
from _pytest.pytester import SysModulesSnapshot

from normlab.any_model import pytest_plugin

pytest_plugins = "pytester"


@pytest.fixture
def run(pytester, monkeypatch):
    """Return a function that runs pytest with models, and returns its outcomes and its output."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(sys, "path", [str(pytester.path), *sys.path])

    def forget_the_folders_modules(snapshot):
        """Keep pytester from dropping the modules that a run imports, such as torch and normlab.

        Importing them again would give later tests in this process new, different classes.
        """
        for name, module in [*sys.modules.items()]:
            if str(getattr(module, "__file__", "")).startswith(str(pytester.path)):
                del sys.modules[name]

    monkeypatch.setattr(SysModulesSnapshot, "restore", forget_the_folders_modules)

    def run(*models):
        options = [f"--normlab-model={each}" for each in models]
        done = pytester.inline_run("-p", pytest_plugin.__name__, "-q", *options)
        counts = dict(zip(("passed", "skipped", "failed"), done.countoutcomes(), strict=True))
        return counts, {r.nodeid: str(r.longrepr) for r in done.getfailures()}

    return run


def test_a_leaking_model_fails_only_the_test_of_its_question(run, pytester):
    pytester.makepyfile(
        mine="""
        import torch
        from torch import nn

        class Mean(nn.Module):
            def forward(self, x, mask):
                return x - x.mean(1, keepdim=True)

        def make():
            mask = torch.arange(12) < torch.tensor([12, 9, 7])[:, None]
            return Mean(), [{"x": torch.randn(3, 12, 4) * mask[..., None], "mask": mask}]

        def only_a_model():
            return Mean()
        """
    )
    counts, failed = run("mine:make")
    assert counts["failed"] == 1 and counts["passed"] >= 3
    ((name, text),) = failed.items()
    assert name.endswith("mine:make::padding") and "broken: the output changes by" in text
    counts, failed = run("mine:only_a_model")
    assert counts["passed"] == 0 and counts["skipped"] > 3  # the model is loaded only once
    assert ["return a model and its batches" in text for text in failed.values()] == [True]


def test_a_model_function_that_returns_checks_is_refused(run, pytester):
    pytester.makepyfile(
        chosen="""
        import torch
        from torch import nn

        def make():
            return nn.Linear(4, 4), [{"input": torch.randn(3, 12, 4)}], {"checks": ["padding"]}
        """
    )
    counts, failed = run("chosen:make")
    assert counts["passed"] == 0
    assert ["omit checks" in text for text in failed.values()] == [True]


def test_hf_tiny_builds_a_small_random_transformers_model_of_a_type(run):
    counts, failed = run("hf-tiny:bert")
    assert failed == {} and counts["passed"] >= 4
    _, failed = run("hf-tiny:berd")
    assert ["no class or model type 'berd'" in text for text in failed.values()] == [True]


def test_timm_models_are_built_by_name(run):
    pytest.importorskip("timm")
    counts, failed = run("timm:test_resnet", "timm:test_vit")
    assert failed == {} and counts["passed"] >= 8
    _, failed = run("timm:no_such_model")
    assert ["Unknown model (no_such_model)" in text for text in failed.values()] == [True]
