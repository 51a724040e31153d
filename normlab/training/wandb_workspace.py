"""Saves a workspace to Weights & Biases: scores by batch size and norm, then curves."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from normlab.config.registry import option_settings
from normlab.errors import UserError
from normlab.training.wandb import find_login, reach

GROUPING = ("task", "corpus", "scale", "norm", "placement", "batch")
_SIZES = "Score by batch size"
_BARS = "Comparison by norm and batch size"
SECTIONS: Mapping[str, Sequence[str]] = {
    _SIZES: ("test/bleu", "test/mlm_accuracy", "test/accuracy", "test/loss"),
    _BARS: ("valid/loss.min", "test/loss", "test/bleu", "test/mlm_accuracy"),
    "Training": ("train/loss", "valid/loss", "valid/bleu", "valid/mlm_accuracy", "train/lr"),
    "Stability": ("train/grad_norm", "stability/residual/growth", "stability/spikes/count"),
    "Batch statistics": ("stability/tid/mean", "train/padding_share"),
    "Throughput": ("train/tokens_per_second", "time/seconds"),
}
"""The metrics in each section of a workspace: points over batch size, then bars, then lines."""


def save_workspace(
    entity: str | None, project: str | None, name: str, conditions: Mapping[str, str]
) -> str:
    """Save a workspace of the runs that match `conditions`, and return its URL.

    `conditions` maps config keys to a value, or to several values such as `ln,bn`. The default
    project is the sink's, and the default entity is the login's. Raises UserError if the login or
    the package is missing, or if W&B refuses.
    """
    import wandb
    from wandb.errors import Error

    login = find_login()
    if login.source is None:
        raise UserError(f"no login for {login.host}: run `wandb login` or set WANDB_API_KEY")
    sink = option_settings("sink", "wandb", "sink")
    where = {key: [*map(yaml.safe_load, of.split(","))] for key, of in conditions.items()}
    try:
        reach(login.host, float(sink["connect_seconds"]))
        entity = entity or sink["entity"] or wandb.Api().default_entity
        if not entity:
            raise UserError(f"the login at {login.host} has no default entity; add --entity NAME")
        saved = workspace(entity=entity, project=project or sink["project"], name=name, where=where)
        saved.save()
    except OSError as error:
        raise UserError(f"{login.host} does not answer ({error}); nothing was saved") from None
    except Error as error:
        raise UserError(f"W&B refused: {str(error).strip()}; nothing was saved") from error
    return saved.url


def workspace(
    *, entity: str, project: str, name: str, where: Mapping[str, Sequence[object]]
) -> Any:
    """Return an unsaved `wandb_workspaces.workspaces.Workspace`.

    `where` maps config keys to the values of the runs to show. Raises `UserError` if the package
    `wandb-workspaces` is not installed.
    """
    try:
        import wandb_workspaces.expr as expr
        import wandb_workspaces.workspaces as ws
    except ModuleNotFoundError:
        cure = "pip install -c constraints.txt wandb-workspaces"
        raise UserError(f"a workspace needs the package wandb-workspaces: {cure}") from None
    sections = [
        ws.Section(
            name=title,
            panels=[_panel(metric, title) for metric in metrics],
            is_open=True,
        )
        for title, metrics in SECTIONS.items()
    ]
    return ws.Workspace(
        entity=entity,
        project=project,
        name=name,
        sections=sections,
        settings=ws.WorkspaceSettings(x_axis="step", max_runs=100),
        runset_settings=ws.RunsetSettings(
            filters=[expr.Config(key).isin(list(values)) for key, values in where.items()],
            groupby=[expr.Config(key) for key in GROUPING],
        ),
    )


def _panel(metric: str, section: str) -> Any:
    """Return a panel of a metric: a point per run over its batch size, or means with ranges."""
    import wandb_workspaces.reports.v2 as wr

    if section == _SIZES:
        title, size = f"{metric} by batch size", wr.Config("batch_size")
        return wr.ScatterPlot(title=title, x=size, y=wr.SummaryMetric(metric), log_x=True)
    how: dict[str, Any] = {"groupby_aggfunc": "mean", "groupby_rangefunc": "minmax"}
    if section == _BARS:
        return wr.BarPlot(title=metric, metrics=[metric], groupby=wr.Config("setting"), **how)
    return wr.LinePlot(title=metric, x="step", y=[metric], **how)
