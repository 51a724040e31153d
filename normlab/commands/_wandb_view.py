"""Decides what a W&B workspace of normlab shows: sections of panels, and how its runs are grouped.

The metrics are those that the W&B sink writes: rows (`train/loss`), the record's scores and
figures in the summary (`test/bleu`), and of a score seen in training its best (`valid/loss.min`).
Every axis of training is the training step.
"""

from collections.abc import Mapping, Sequence
from typing import Any

GROUPING = ("task", "corpus", "scale", "batch", "norm", "placement")
"""Config keys, top-level in every run of the sink; a group's members are its seeds."""

_COLUMNS = (
    *(f"config:{key}.value" for key in (*GROUPING, "seed")),
    *("summary:outcome", "summary:valid/loss.min", "summary:test/loss"),
)
_TO_LOSS = ("norm", "placement", "batch")
_BEST_LOSS = "valid/loss.min"
_STEP = "step"
_TIME = "RelativeTime(Process)"  # W&B measures the machine by the clock, not by steps


def view(*, entity: str, project: str, name: str, where: Mapping[str, Sequence[object]]) -> Any:
    """Return the workspace, a `wandb_workspaces.workspaces.Workspace` that is not saved yet.

    `where` maps config keys to the values that shown runs have. Raises `ValueError` where W&B's
    library for workspaces is not installed.
    """
    try:
        import wandb_workspaces.expr as expr
        import wandb_workspaces.workspaces as ws
    except ModuleNotFoundError:
        raise ValueError(
            "a view needs the package wandb-workspaces: "
            "pip install -c constraints.txt wandb-workspaces"
        ) from None
    return ws.Workspace(
        entity=entity,
        project=project,
        name=name,
        sections=_sections(),
        settings=ws.WorkspaceSettings(x_axis=_STEP, max_runs=100, ignore_outliers=False),
        runset_settings=ws.RunsetSettings(
            filters=[expr.Config(key).isin(list(values)) for key, values in where.items()],
            groupby=[expr.Config(key) for key in GROUPING],
            pinned_columns=["run:displayName", *_COLUMNS],
        ),
    )


def _sections() -> list[Any]:
    import wandb_workspaces.reports.v2 as wr
    import wandb_workspaces.workspaces as ws

    sections = {
        "Comparison by norm": _comparison(),
        "Loss": [
            _lines("Training loss", "train/loss"),
            _lines("Validation loss", "valid/loss"),
            _lines("Training and validation loss", "train/loss", "valid/loss"),
            _lines("Validation perplexity", "valid/perplexity", log=True),
            _lines("Learning rate", "train/lr"),
            _lines("Loss spikes so far", "stability/spikes/count"),
        ],
        "Translation: BLEU": [
            _bars("BLEU by batch size and norm", "test/bleu", by="batch_and_norm"),
            wr.ScatterPlot(
                title="Test BLEU by batch size",
                x=wr.Config("batch_size"),
                y=wr.SummaryMetric("test/bleu"),
                log_x=True,
            ),
            _lines("Validation BLEU", "valid/bleu"),
            _lines("Validation chrF", "valid/chrf"),
            _bars("Test BLEU", "test/bleu"),
            _bars("Test BLEU, tokenised and lowercased", "test/bleu_tok"),
            _bars("Test chrF", "test/chrf"),
        ],
        "Language models: accuracy": [
            _lines("Masked-token accuracy", "valid/mlm_accuracy"),
            _lines("Next-sentence accuracy", "valid/nsp_accuracy"),
            _bars("Test masked-token accuracy", "test/mlm_accuracy"),
            _bars("Test next-sentence accuracy", "test/nsp_accuracy"),
            _bars("Test bits per character", "test/bits_per_character"),
        ],
        "Stability": [
            _lines("Gradient norm before clipping", "train/grad_norm", log=True),
            _lines(
                "Gradient norm by kind of parameter",
                *(
                    f"stability/gradients/kind/{kind}"
                    for kind in (
                        *("attention", "feed_forward", "convolution", "recurrent"),
                        *("embedding", "norm"),
                    )
                ),
                log=True,
            ),
            _bars("Largest gradient norm", "stability/grad_norm/max"),
            _bars("Gradient noise", "stability/grad_norm/noise"),
            _lines("Growth of the residual stream", "stability/residual/growth"),
            _lines("Update-to-weight ratio", "stability/updates/ratio", log=True),
        ],
        "Batch statistics": [
            _lines("TID of the mean", "stability/tid/mean"),
            _lines("TID of the variance", "stability/tid/var"),
            _lines("Fluctuation of the mean", "stability/fluctuation/mean"),
            _lines("Fluctuation of the variance", "stability/fluctuation/var"),
            _lines("Share of padding", "stability/padding/share", "train/padding_share"),
            _lines("Tokens a batch statistic is made of", "stability/padding/tokens"),
        ],
        "Throughput": [
            _lines("Tokens (or pictures) a second", "train/tokens_per_second"),
            _lines("Tokens (or pictures) seen", "tokens"),
            _lines("Seconds", "time/seconds"),
            _bars("Wall time (s)", "wall_seconds"),
            _lines("Memory of the process (MB)", "system/proc.memory.rssMB", x=_TIME),
            _lines("Use of the GPU (%)", "system/gpu.0.gpu", x=_TIME),
        ],
    }
    first = next(iter(sections))
    return [
        ws.Section(
            name=name,
            panels=panels,
            is_open=name in (first, "Loss"),
            pinned=name == first,
            panel_settings=ws.SectionPanelSettings(x_axis=_STEP),
        )
        for name, panels in sections.items()
    ]


def _comparison() -> list[Any]:
    import wandb_workspaces.reports.v2 as wr
    from wandb_workspaces.reports.v2.interface import ParallelCoordinatesPlotColumn

    columns = [
        *(ParallelCoordinatesPlotColumn(metric=wr.Config(key)) for key in _TO_LOSS),
        ParallelCoordinatesPlotColumn(
            metric=wr.SummaryMetric(_BEST_LOSS), display_name="best validation loss", log=True
        ),
    ]
    return [
        _bars("Best validation loss", _BEST_LOSS),
        _bars("Test loss", "test/loss"),
        wr.ScatterPlot(
            title="Best validation loss by batch size",
            x=wr.Config("batch_size"),
            y=wr.SummaryMetric(_BEST_LOSS),
            log_x=True,
        ),
        wr.ParallelCoordinatesPlot(title="Norm, placement and batch size to loss", columns=columns),
        _bars("Loss spikes", "stability/spikes/count"),
        wr.RunComparer(diff_only="split"),
    ]


def _lines(title: str, *metrics: str, log: bool = False, x: str = _STEP) -> Any:
    """Draw metrics over training: the mean of a group, and how far its members are spread."""
    import wandb_workspaces.reports.v2 as wr

    return wr.LinePlot(
        title=title,
        x=x,
        y=list(metrics),
        log_y=log or None,
        groupby_aggfunc="mean",
        groupby_rangefunc="minmax",
        title_x="training step" if x == _STEP else None,
    )


def _bars(title: str, metric: str, *, by: str = "norm") -> Any:
    """Draw a figure of each run's summary, the runs of a norm together, or of another key."""
    import wandb_workspaces.reports.v2 as wr

    return wr.BarPlot(
        title=title,
        metrics=[metric],
        groupby=wr.Config(by),
        groupby_aggfunc="mean",
        groupby_rangefunc="minmax",
    )


def outline(workspace: Any) -> list[tuple[str, str, str]]:
    """Return a row a panel of a workspace: section, title, and the metrics and keys it shows."""
    return [
        (section.name, _title(panel), ", ".join(_shown(panel)))
        for section in workspace.sections
        for panel in section.panels
    ]


def _title(panel: Any) -> str:
    return getattr(panel, "title", None) or type(panel).__name__


def _shown(panel: Any) -> list[str]:
    found = [column.metric for column in getattr(panel, "columns", [])]
    for name in ("metrics", "x", "y"):
        value = getattr(panel, name, [])
        found += value if isinstance(value, list) else [value]
    names = [getattr(value, "name", value) for value in found]
    return [name for name in names if name not in (_STEP, _TIME)]
