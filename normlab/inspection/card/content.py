"""The content of a card: the norm, the machine, and the answers to the card's questions."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

from normlab.config.registry import options
from normlab.config.run_config import to_dict
from normlab.findings.finding import Finding
from normlab.findings.question import Question
from normlab.inspection.card.examined_norm import ExaminedNorm, trained_record
from normlab.inspection.model.built_model import BuiltModel, model_from_run
from normlab.inspection.questions import entry
from normlab.records.record import plain
from normlab.records.store import RunStore
from normlab.reports.card_file import CardContent
from normlab.training.runtime import Runtime


def answers(
    norm: ExaminedNorm, questions: Sequence[Question]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each question and the answer to it.

    Questions about a model are asked about the model from the first translation run.
    """
    model = cache(partial(_trained_model, norm))
    for each in questions:
        if each.of == "card":
            answer = each.ask(norm)
        elif (built := model()) is not None:
            answer = each.ask(built)
        else:
            answer = Finding.none("the translation run diverged, so there is no trained model")
        yield each.name, plain(entry(each, answer))


def _trained_model(norm: ExaminedNorm) -> BuiltModel | None:
    config = norm.config("translation", seed=norm.sizes.seeds[0])
    if trained_record(config).outcome.status != "finished":
        return None
    return model_from_run(RunStore(config.runs_dir).run_dir(to_dict(config)), [])


def card_of(norm: ExaminedNorm, answers: Mapping[str, Any]) -> CardContent:
    """Return the content of `card.json`, with the environment of this machine."""
    config = to_dict(norm.config("translation"))
    environment = Runtime.start(device=norm.device, precision="fp32", threads=1).environment()
    described = {option.name: option.description for option in options("norm")}
    return CardContent(
        name=norm.name,
        description=described[config["choices"]["norm"]],
        overrides=[*norm.overrides],
        scale=norm.scale,
        seeds=[*norm.sizes.seeds],
        norm=config["norm"],
        environment=plain(dict(environment)),
        findings=answers,
    )
