"""A workspace at Weights & Biases that compares norms: sections of panels, runs in groups.

Runs are grouped by `GROUPING`, top-level config keys that the W&B sink sets, so that the members of
a group are its seeds.
"""

from collections.abc import Mapping, Sequence
from typing import Any

GROUPING = ("task", "corpus", "scale", "batch", "norm", "placement")
_STEP = "step"
_LOSS = "valid/loss.min"
_COLUMNS = (*(f"config:{key}.value" for key in (*GROUPING, "seed")), "summary:test/loss")
SECTIONS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "Comparison by norm": {
        "bars": (_LOSS, "test/loss", "test/bleu", "test/mlm_accuracy", "stability/spikes/count"),
    },
    "Training": {
        "lines": ("train/loss", "valid/loss", "valid/bleu", "valid/mlm_accuracy", "train/lr"),
    },
    "Stability": {
        "log lines": ("train/grad_norm", "stability/updates/ratio"),
        "lines": ("stability/residual/growth", "stability/spikes/count"),
    },
    "Batch statistics": {
        "lines": (
            *("stability/tid/mean", "stability/tid/var"),
            *("stability/fluctuation/mean", "stability/fluctuation/var", "train/padding_share"),
        ),
    },
    "Throughput": {"lines": ("train/tokens_per_second", "time/seconds")},
}
"""The metrics of each section by the kind of panel: bars of the summary, lines by step."""


def workspace(
    *, entity: str, project: str, name: str, where: Mapping[str, Sequence[object]]
) -> Any:
    """Return the `wandb_workspaces.workspaces.Workspace`, not saved yet.

    `where` maps config keys to the values that shown runs have. Raises `ValueError` where W&B's
    library for workspaces is not installed.
    """
    try:
        import wandb_workspaces.expr as expr
        import wandb_workspaces.workspaces as ws
    except ModuleNotFoundError:
        raise ValueError(
            "a workspace needs the package wandb-workspaces: "
            "pip install -c constraints.txt wandb-workspaces"
        ) from None
    sections = [
        ws.Section(
            name=title,
            panels=[_panel(kind, name) for kind, names in kinds.items() for name in names],
            is_open=True,
            panel_settings=ws.SectionPanelSettings(x_axis=_STEP),
        )
        for title, kinds in SECTIONS.items()
    ]
    return ws.Workspace(
        entity=entity,
        project=project,
        name=name,
        sections=sections,
        settings=ws.WorkspaceSettings(x_axis=_STEP, max_runs=100, ignore_outliers=False),
        runset_settings=ws.RunsetSettings(
            filters=[expr.Config(key).isin(list(values)) for key, values in where.items()],
            groupby=[expr.Config(key) for key in GROUPING],
            pinned_columns=["run:displayName", *_COLUMNS],
        ),
    )


def _panel(kind: str, metric: str) -> Any:
    """Draw the mean of a group, and the range of its members."""
    import wandb_workspaces.reports.v2 as wr

    how: dict[str, Any] = {"groupby_aggfunc": "mean", "groupby_rangefunc": "minmax"}
    if kind == "bars":
        return wr.BarPlot(title=metric, metrics=[metric], groupby=wr.Config("norm"), **how)
    log = True if kind == "log lines" else None
    return wr.LinePlot(title=metric, x=_STEP, y=[metric], log_y=log, **how)
