"""What all endpoints of studies share: planned sides, enough seeds, seen seeds, further runs."""

import pytest

from normlab.claims.texts import result_text
from tests.claims.handmade_study import contrast, decided, primary, run, side


def test_a_side_without_a_planned_run_is_refused(tmp_path):
    problem = (
        r"01_so.yaml: part so_1: made at scale=small plans no run with norm=lm; .* ln; bn; none"
    )
    with pytest.raises(ValueError, match=problem):
        decided(tmp_path, [], contrast(better={"norm": "lm"}))


def test_a_contrast_with_fewer_than_five_seeds_is_not_measured(tmp_path):
    judged_part = primary(tmp_path, side("ln", 30.0, 3) + side("bn", 20.0, 4), contrast())
    assert (
        judged_part.verdict == "not measured"
        and str(judged_part.reason) == "too few seeds (3 of 5)"
    )
    assert (
        judged_part.basis.n,
        len(judged_part.basis.records),
        judged_part.decision.p,
    ) == (3, 6, None)
    # Seed 4 has only some of its runs, so new seeds are proposed.
    more = judged_part.to_measure
    assert more.command == "normlab study run made scale=small rows=ln,bn seeds=5,6"
    assert more.cost.startswith("4 runs, about 24 min")


def test_new_seeds_are_proposed_if_another_row_has_published_the_first_ones(tmp_path):
    more = primary(tmp_path, side("gn", 30.0), contrast()).to_measure
    assert more.command == "normlab study run made scale=small rows=ln,bn seeds=6,7,8,9,10"


def test_seeds_trained_on_an_earlier_toy_corpus_must_all_be_rerun(tmp_path):
    earlier = {"source": "toy", "label": "toy (generated German-English)"}
    records = [
        run(k, norm, 30.0 + k % 2, data=earlier) for k in range(1, 6) for norm in ("ln", "bn")
    ]
    more = primary(tmp_path, records, contrast(margin=0.5)).to_measure
    assert more.command == "normlab study run made scale=small seeds=1,2,3,4,5,6,7,8"
    assert more.cost.endswith("run all seeds again and publish with --replace")


def test_scores_are_compared_only_if_all_seeds_train(tmp_path):
    # On average both sides clearly beat the baseline of 3, but one seed of one side does not.
    rest = [*side("ln", 30.0), *side("bn", 20.0, 4)]
    low = primary(tmp_path, [*rest, run(5, "bn", 2.0)], contrast())
    assert str(low.reason).startswith("not every run trains") and low.decision.stuck
    assert result_text(low) == (
        "runs that trained: 5/5 with layer norm (95 % CI: ≥ 47 %), 4/5 with batch norm"
    )
    near = [run(k, "bn", 3.4 + 0.01 * k) for k in range(1, 6)]  # clear only on average
    none = primary(tmp_path, [*side("ln", 30.0), *near], contrast())
    assert none.verdict == "undecided" and result_text(none).endswith("0/5 with batch norm")


def test_a_decision_by_scores_falls_if_a_seed_of_a_later_analysis_diverges(tmp_path):
    eight = [*side("ln", 30.0, 8), *side("bn", 28.0, 7)]
    assert primary(tmp_path, [*eight, *side("bn", 28.0, 8)[7:]], contrast()).verdict == "supported"
    fallen = primary(tmp_path, [*eight, run(8, "bn", None, status="diverged")], contrast())
    assert fallen.verdict == "undecided" and fallen.basis.n == 8
    assert "7/8 with batch norm" in result_text(fallen)
    # A run that no analysis has reached yet changes nothing.
    later = [*side("ln", 30.0, 6), *side("bn", 28.0, 5), run(6, "bn", None, status="diverged")]
    assert primary(tmp_path, later, contrast()).verdict == "supported"


def test_seen_seeds_show_a_value_but_only_later_seeds_decide(tmp_path):
    seen = {"seen_seeds": 5}
    records = side("ln", 30.0) + side("bn", 28.0)
    judged_part = primary(tmp_path, records, contrast(margin=0.5, **seen))
    assert judged_part.verdict == "undecided" and "seeds after 5" in judged_part.question
    assert result_text(judged_part).startswith("2.00 [") and judged_part.decision.p is None
    assert "seeds=6,7,8,9,10" in judged_part.to_measure.command
    twelve = [*side("ln", 30.0, 12), *side("bn", 28.0, 12)]
    later = [each for each in twelve if each.seed > 5]
    judged_part = primary(
        tmp_path, [*side("ln", 30.0), *side("bn", 32.0), *later], contrast(**seen)
    )
    assert judged_part.verdict == "supported"
    assert judged_part.basis.n == 5 and judged_part.decision.estimate.mean == pytest.approx(
        2.0, abs=0.15
    )


def test_the_scope_names_the_model_with_the_fewest_layers_first(tmp_path):
    layers = {"ln": {"num_layers": 6}, "bn": {"encoder_layers": 2, "decoder_layers": 2}}
    records = [*side("ln", 30.0), *side("bn", 28.0)]
    for each in records:
        each.config["model"] = layers[each.config["norm"]["option"]]
    assert primary(tmp_path, records, contrast()).basis.scope.layers == ("2+2", "6")
