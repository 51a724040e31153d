"""The question about gradients and the first update in a deep model."""

from normlab.config.run_config import to_dict
from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.inspection.card.examined_norm import ExaminedNorm
from normlab.inspection.model.built_model import model_from_config
from normlab.inspection.model.gradients import first_update, layer_gradients
from normlab.probes.gradients import growth_by_stack


@question("depth", of="card")
def depth(examined: ExaminedNorm) -> Finding:
    """How do the gradient and the first update vary with depth in a deep, narrow model?"""
    layers = examined.sizes.depth
    deep = ("model.dim=64", "model.ffn_dim=128", f"model.depth={layers}")
    built = model_from_config(to_dict(examined.config("translation", *deep)))
    by_layer = layer_gradients(built).by_layer
    changes = first_update(built)
    growth = growth_by_stack(by_layer)
    gradient = {name: each for name, each in by_layer.items() if name in changes}
    last = [*changes.values()][-1]
    grows = " and ".join(f"x {value:.2g} over the {stack}" for stack, value in growth.items())
    return Finding(
        f"{layers}+{layers} layers: the gradient grows {grows}; one update changes the last "
        f"layer's output by {last:.0%}",
        {"layers": layers, "gradient": gradient, "growth": growth, "moved": changes},
        AnswerTable(
            ("layer", "gradient norm", "changed by one update"),
            [(name, each, changes[name]) for name, each in gradient.items()],
        ),
        board={"grad growth": growth.get("decoder"), "first update": last},
    )
