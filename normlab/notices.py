"""What a run says of its norms before its first step, a line each."""

from collections.abc import Iterator, Mapping

from torch import nn

_BEGINS_AFTER = ("freeze_statistics",)  # its milestone is the last step without it


def notices(model: nn.Module, milestones: Mapping[str, int], total: int | None) -> Iterator[str]:
    """Yield what schedules of their own the norms have, and what is out of the ordinary.

    `milestones` are the last steps of these schedules by name, `total` the steps of the run.
    """
    if milestones:
        yield f"norms' own schedules: {_listed(milestones)}"
    late = {name: step for name, step in milestones.items() if total and step > total}
    if late:
        yield f"warning: the run ends at step {total:,}, within a norm's own schedule: " + _listed(
            late
        )
    if not getattr(model, "incremental", True):
        yield (
            "decoding reads the whole prefix anew for each token: in evaluation a norm looks at "
            "other tokens"
        )

    if sees := sorted(
        {type(m).__name__ for m in _causal(model).modules() if getattr(m, "sees_future", False)}
    ):
        yield (
            f"warning: {', '.join(sees)} shows a token the later ones of its sequence, in training "
            "too: losses and scores are those of a model that has seen what it predicts"
        )


def _causal(model: nn.Module) -> nn.Module:
    """Return the part of a model that predicts the next token: nothing of one that does not."""
    if not hasattr(model, "incremental"):
        return nn.Identity()
    decoder = getattr(model, "decoder", model)
    return decoder if isinstance(decoder, nn.Module) else model


def _listed(milestones: Mapping[str, int]) -> str:
    return ", ".join(
        f"{name} from step {step + 1:,}"
        if name in _BEGINS_AFTER
        else f"{name.replace('/', ' ')} until step {step:,}"
        for name, step in milestones.items()
    )
