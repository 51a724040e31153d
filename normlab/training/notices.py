"""Notices about a model's norms, given before the first step."""

from collections.abc import Iterator, Mapping

from torch import nn

from normlab.training.sinks import Notice


def notices(model: nn.Module, milestones: Mapping[str, int], total: int | None) -> Iterator[Notice]:
    """Yield notices about the norms' schedules, and warnings.

    `milestones` maps the name of each phase to its last step, and `total` is the run's number of
    steps.
    """
    texts = {
        name: f"{name} from step {step + 1:,}"  # the milestone is the step before the freeze
        if name == "freeze_statistics"
        else f"{name.replace('/', ' ')} until step {step:,}"
        for name, step in milestones.items()
    }
    if texts:
        yield Notice(f"norms' own schedules: {', '.join(texts.values())}")
    if late := [texts[name] for name, step in milestones.items() if total and step > total]:
        where = f"the run ends at step {total:,}, within a norm's own schedule"
        yield Notice(f"{where}: {', '.join(late)}", warning=True)
    if sees := seeing_future(model):
        yield Notice(
            f"{', '.join(sees)} leaks later tokens of a sequence to earlier ones, in training too: "
            "losses and scores come from a model that has seen what it predicts",
            warning=True,
        )


def seeing_future(model: nn.Module) -> list[str]:
    """Return the classes of the norms that let a decoder see later tokens."""
    if not hasattr(model, "start_decoding"):  # the model does not predict next tokens
        return []
    parts = getattr(model, "decoder", model).modules()
    return sorted({type(m).__name__ for m in parts if getattr(m, "sees_future", False)})
