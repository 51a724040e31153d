"""Every study loads and composes at every scale; errors name the faulty file and key."""

import re
from itertools import groupby

import pytest
import yaml

from normlab.config.compose import compose
from normlab.config.folders import CONFIG_DIR
from normlab.config.instantiation import instantiate
from normlab.config.registry import option_names, options
from normlab.config.run_config import to_dict
from normlab.config.schema import SHORT
from normlab.errors import UserError
from normlab.studies.load import load_study, tuning_of
from normlab.studies.study import Tuning
from normlab.studies.study_part import StudyPart
from normlab.training.schedule import Schedule
from normlab.training.stopping import Budget
from tests.claims.planned import by_study, without_runs

STUDIES = option_names("study")
RESULTS = CONFIG_DIR.parent / "results"
SCALES = ("smoke", "small", "paper")

GOOD = """\
# normlab study run good
# A study for tests.
article: article 1
table: Norms
claims: [1, 2]
rows: {ln: [norm=ln], bn: [norm=bn], none: [norm=none]}
grid:
  placement: [pre, post]
  batch_size: {8: [batch_size=8, optim.lr=1e-3], 32: [batch_size=32]}
columns: [test/bleu, valid/loss]
article_values: {ln: {test/bleu: 35}, none: {test/bleu: no convergence}}
scales:
  smoke:
    overrides: [task=toy]
    rows: [ln, bn]
    grid: {placement: [pre]}
    seeds: [1]
    minutes: 0.5
    data: built in
  small:
    {overrides: [task=multi30k, norm.sync=false], seeds: [1, 2, 3], minutes: 10, data: a folder}
"""


@pytest.fixture
def written(tmp_path):
    """Return a function that writes a changed study and loads it."""

    def load(change=lambda node: None):
        node = yaml.safe_load(GOOD)
        change(node)
        path = tmp_path / "study" / "good.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text("# A study for tests.\n" + yaml.safe_dump(node, sort_keys=False))
        return load_study("good", tmp_path)

    return load


@pytest.mark.parametrize("name", STUDIES)
def test_every_scale_with_a_tuning_lists_the_values_that_were_tried(name):
    study = load_study(name)
    for scale, size in study.scales.items():
        if size.tuning is not None:
            assert tuning_of(study, scale).values, scale


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_has_its_command_a_description_and_all_scales(name):
    option = next(option for option in options("study") if option.name == name)
    study = load_study(name)
    assert option.path.read_text("utf-8").startswith(f"# normlab study run {name}")
    assert study.description == option.description != ""
    pilot = all(scale.pilot for scale in study.scales.values())
    assert pilot or [scale for scale in study.scales if scale in SCALES] == list(SCALES)


def chosen():
    """Yield each study and scale with the runs in which some override occurs for the first time.

    A number counts as new if its key had no number before. If claims judge runs that are few and
    not yet published, all of them are yielded.
    """
    seen = set()
    for name in STUDIES:
        study = load_study(name)
        for scale in study.scales:
            runs, planned = [], study.planned(scale, seeds=[1])
            unmade = len(planned) <= 4 and (name, scale) in by_study()
            unmade = unmade and not (RESULTS / name / scale).exists()
            for run in planned:
                new = {re.sub(r"=[\d.e-]+$", "", each) for each in run.overrides}
                new = {each for each in new if not each.startswith("observe.")}
                if unmade or not new <= seen:
                    seen |= new
                    runs.append(run)
            if runs:
                yield pytest.param(name, scale, runs, unmade, id=f"{name}-{scale}")


@pytest.mark.parametrize(("name", "scale", "runs", "unmade"), [*chosen()])
def test_runs_compose_and_are_found_by_their_claims(name, scale, runs, unmade):
    configs = [to_dict(compose(run.overrides)) for run in runs]
    for run, config in zip(runs, configs, strict=True):
        assert (config["observe"]["study"], config["seed"]) == (name, 1)
        instantiate(config["schedule"], "schedule", Schedule)  # raises for any other class
        Budget(**config["budget"])
        if scale == "smoke":
            corpus = (config["task"].get("corpus") or {}).get("option")
            own = corpus or config["choices"]["task"]
            assert own in ("toy", "digits", "pydoc", "wine"), "a smoke run needs no data"
        if scale.startswith("paper"):  # the value of `auto` depends on the GPU
            assert config["precision"] != "auto"
        if name == "batch_size":  # compared at equal numbers of tokens
            assert config["budget"]["steps"] is None and config["max_tokens"] is None
            assert f"batch_size={config['batch_size']}" == run.point
    if unmade:
        assert not (problems := without_runs(name, scale, configs)), "\n".join(problems)


def test_a_smoke_scale_takes_at_most_15_runs_and_15_minutes():
    costs = {name: load_study(name) for name in STUDIES}
    small = {name: study.cost("smoke") for name, study in costs.items() if "smoke" in study.scales}
    assert {name for name, (runs, hours) in small.items() if runs > 15 or hours > 0.25} == set()


def test_runs_are_ordered_by_seed_and_then_by_grid_point(written):
    planned = written().planned("small")
    assert [seed for seed, _ in groupby(run.seed for run in planned)] == [1, 2, 3]
    tables = [[(run.point, run.row) for run in planned if run.seed == seed] for seed in (1, 2, 3)]
    assert tables[0] == tables[1] == tables[2]
    points = [point for point, _ in groupby(point for point, _ in tables[0])]
    assert points == [
        "placement=pre batch_size=8",
        "placement=pre batch_size=32",
        "placement=post batch_size=8",
        "placement=post batch_size=32",
    ]
    assert [row for _, row in tables[0][:3]] == ["ln", "bn", "none"]


def test_an_override_of_a_grid_axis_keeps_only_its_values(written):
    planned = written().planned("small", seeds=[1], extra=["placement=post", "batch_size=32,8"])
    assert list(dict.fromkeys(run.point for run in planned)) == [
        "placement=post batch_size=32",
        "placement=post batch_size=8",
    ]
    assert all(run.overrides.count("placement=post") == 1 for run in planned)
    with pytest.raises(ValueError, match=r"batch_size=9: .* has no value 9; choose from 8, 32"):
        written().planned("small", extra=["batch_size=9"])


RATES = {
    "bn": ["optim.lr=1e-3", "schedule.warmup=100"],
    "bn @ placement=post batch_size=32": ["optim.lr=3e-4"],
    "bn @ placement=post": ["optim.lr=5e-4"],
}


@pytest.mark.parametrize(
    ("point", "rate"),
    [
        ("placement=pre batch_size=32", "1e-3"),
        ("placement=post batch_size=8", "5e-4"),
        ("placement=post batch_size=32", "3e-4"),
    ],
)
def test_the_rate_for_the_most_specific_grid_point_applies(written, point, rate):
    size = written(within("scales", "small", "rates")(RATES)).scale("small")
    assert size.chosen("bn", point) == (f"optim.lr={rate}", "schedule.warmup=100")
    assert size.chosen("ln", point) == ()


def test_overrides_with_short_keys_get_the_full_key_everywhere(written):
    def change(node):
        node["rows"]["bn"] += ["epochs=2"]
        node["grid"] = {"lr": ["1e-2", "2e-2"], "placement": {"pre": ["steps=5"]}}
        node["scales"]["small"]["overrides"] += ["lr=1e-3"]
        node["scales"]["small"]["rates"] = {"bn @ lr=1e-2": ["clip_grad=1"]}
        node["scales"]["smoke"] |= {"overrides": ["lr=1"], "rates": {"ln": ["name=a"]}, "grid": {}}
        node["at"] = {"bn @ lr=1e-2": ["tags=[a]"]}

    planned = written(change).planned("small", seeds=[1])
    place = ("bn", "lr=1e-2 placement=pre")
    (settings,) = (run.settings for run in planned if run.row_and_point == place)
    assert settings["optim.lr"] == "1e-2" and not {*settings} & {*SHORT}
    assert (settings["budget.epochs"], settings["budget.steps"]) == ("2", "5")
    assert settings["observe.tags"] == "[a]"
    part = StudyPart.of(written(change), ["lr=2e-2", "steps=9"])
    assert part.extra == ["lr=2e-2", "budget.steps=9"]
    with pytest.raises(ValueError, match=r"scales.smoke.rates.ln: optim.lr=2 sets an axis"):
        written(lambda node: (change(node), node["scales"]["smoke"]["rates"].update(ln=["lr=2"])))


TUNING = {"key": "optim.lr", "values": ["1e-3", "2e-3"], "seeds": [101], "score": "valid/bleu"}


def test_a_tuning_over_two_values_is_allowed_only_at_smoke_and_pilot_scales(written):
    def tuned(scale, **given):
        return lambda node: node["scales"][scale].update(tuning=TUNING, **given)

    assert written(tuned("smoke")).scale("smoke").tuning.values == ("1e-3", "2e-3")
    with pytest.raises(
        ValueError,
        match=r"good.yaml: scales.small.tuning.values: too few values \(2\): list at least three",
    ):
        written(tuned("small"))
    pilot = written(tuned("small", pilot=True))
    other = written(within("scales", "small", "tuning")("pilot"))
    with pytest.raises(ValueError, match=r"tuning.values, for good: .*at least three"):
        tuning_of(other, "small", lambda name: pilot)


def test_the_error_for_an_unknown_study_or_scale_lists_the_known_ones(written):
    said = r"no study 'BERT_norm'\. Did you mean bert_norms\? `normlab list studies` shows all"
    with pytest.raises(ValueError, match=said):
        load_study("BERT_norm")
    with pytest.raises(ValueError, match="scale=paper is not a scale of good; choose from smoke"):
        written().planned("paper")


def test_a_literature_value_for_an_unknown_row_or_point_raises_an_error(written):
    number = {"what": "BLEU", "source": "a paper", "number": [35], "column": "test/bleu"}
    number |= {"scale": "small", "at": "placement=pre batch_size=8"}
    right = written(lambda node: node.update(literature=[{**number, "row": "bn", "minus": "ln"}]))
    assert right.literature[0].number == (35.0,)
    for wrong in ({"row": "bm"}, {"row": "bn", "minus": "lm"}, {"row": "bn", "at": "placement=x"}):
        with pytest.raises(UserError, match=r"good.yaml: literature"):
            written(lambda node, wrong=wrong: node.update(literature=[{**number, **wrong}]))
    for numbers in ([0], [-0.1, 0.2]):
        no_sign = {**number, "row": "bn", "by": "sign", "number": numbers}
        with pytest.raises(UserError, match=r"literature.*'BLEU': by: sign needs numbers above"):
            written(lambda node, no_sign=no_sign: node.update(literature=[no_sign]))


def within(*keys):
    def change(value):
        def edit(node):
            for key in keys[:-1]:
                node = node[key]
            node[keys[-1]] = value

        return edit

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda node: node.pop("table"), "the file: .* missing required field `table`"),
        (within("colums")([]), "the file: 'colums' does not exist; choose from .*columns"),
        (within("claims")(["one"]), r"claims\[0\]: Expected `int`, got `str`, found 'one'"),
        (within("rows", "bn")(["lr=1", "optim.lr=2"]), "rows.bn: .* both set; keep one"),
        (within("rows")({}), "rows: Expected `object` of length >= 1, found {}"),
        (within("rows", "bn")(["norm"]), r"rows.bn\[0\]: Expected `str` matching regex '='"),
        (
            within("article_values", "ln", "test/blue")(1),
            "article_values.ln: 'test/blue' does not exist; choose",
        ),
        (
            within("scales", "small", "seed")([1]),
            "scales.small: `seed` does not exist; choose from .*seeds",
        ),
        (within("scales", "small", "minutes")(0), "scales.small.minutes: Expected `float` > 0.0"),
        (within("scales", "small", "minutes")(float("inf")), "small.minutes: Expected `float`"),
        (within("scales", "small", "minutes")(1e9), "small.minutes: Expected `float` <= 525600"),
        (within("scales", "small", "seeds")([1, 2, 1]), "scales.small.seeds: 1 occurs twice"),
        (within("grid", "placement")(["pre", "pre"]), "grid.placement: pre occurs twice"),
        (within("scales", "small", "grid")(["placement"]), "small.grid: Expected `object`"),
        (within("scales", "small", "grid")(None), "scales.small.grid: Expected `object`"),
        (
            within("scales", "small", "grid")({"placement": None}),
            "scales.small.grid.placement: Expected `array`",
        ),
        (within("scales", "small", "grid")({"placement": []}), r"placement: .*length >= 1"),
        (
            within("scales", "small", "grid")({"placement": {"pre": ["placement=post"]}}),
            "scales.small.grid.placement: Expected `array`, got `object`",
        ),
        (within("scales", "small", "rows")(["bn"]), "scales.small.rows: must begin with ln"),
        (within("scales", "small", "grid")({"lr": [1]}), "small.grid: 'lr' does not exist; choose"),
        (
            within("scales", "smoke", "rates")({"bn @ placement=post": []}),
            "rates.bn @ placement=post: 'placement=post' does not exist; choose from plac",
        ),
        (
            within("scales", "small", "rates")({"bn": ["batch_size=4"]}),
            "scales.small.rates.bn: batch_size=4 sets an axis of the grid",
        ),
    ],
)
def test_an_error_in_a_study_file_mentions_file_and_key(written, change, message):
    with pytest.raises(ValueError, match=rf"study/good.yaml: .*{message}"):
        written(change)


def test_values_and_names_stay_as_written(tmp_path):
    text = GOOD.replace(
        "batch_size: {8: [batch_size=8, optim.lr=1e-3], 32: [batch_size=32]}",
        "batch_size: [010, 0x10, 1_0, 1.50]",
    ).replace("none", "no")
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "good.yaml").write_text(text)
    study = load_study("good", tmp_path)
    assert [*study.grid["batch_size"]] == ["010", "0x10", "1_0", "1.50"]
    assert [*study.rows] == ["ln", "bn", "no"]
    assert study.article_values == {
        "ln": {"test/bleu": 35.0},
        "no": {"test/bleu": "no convergence"},
    }


def test_a_row_may_have_overrides_at_some_points_of_the_grid(written):
    def change(node, place="bn @ placement=post"):
        node["at"] = {place: ["norm.affine=scale"]}

    study = written(change)
    tuning = Tuning("optim.lr", ("1e-3",), (101,), "valid/loss")
    for runs in (study.planned("small", seeds=[1]), study.trials("small", tuning)):
        own = {(run.row, run.point) for run in runs if "norm.affine=scale" in run.overrides}
        assert own == {("bn", f"placement=post batch_size={size}") for size in (8, 32)}
    with pytest.raises(
        ValueError, match=r"good.yaml: at.bn @ depth=2: 'depth=2' does not exist; choose from"
    ):
        written(lambda node: change(node, "bn @ depth=2"))
