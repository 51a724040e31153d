"""The rules that keep the package changeable: who may import whom, and what a new norm takes."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.new_images import (
    NEW_CELL,
    NEW_CELL_CONFIG,
    NEW_MODEL,
    NEW_MODEL_CONFIG,
    NEW_SOURCE,
    NEW_TASK_CONFIG,
)
from tests.new_norms import NEW_CONFIG, NEW_NORM, NEW_STATEFUL_CONFIG, NEW_STATEFUL_NORM

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "normlab"

# Package or module -> what it may import besides itself, the longest fitting name first. A name
# allows all that is below it.
MAY_IMPORT = {
    # 0
    "records": ("config.sites",),
    "machine": (),
    "distributed": (),
    "config.registry": (),
    "train.numerics": ("config.registry",),
    "progress": (),
    # 1
    "metrics": ("records",),
    "data": ("records", "distributed"),
    "norms": ("distributed",),
    # 2
    "placements": ("norms.base", "norms.local", "distributed"),
    # 3
    "models": (
        *("placements.base", "placements.pre", "norms.base", "norms.local"),
        *("placements.dropout", "distributed"),
    ),
    # 4
    "probes": (
        *("norms.base", "norms.pool", "placements.base", "records"),
        *("models.base", "models.attention"),
    ),
    # 5: the signatures of a task name scores, shards, streams and placements
    "tasks.base": (
        *("records", "distributed", "norms.base", "norms.recalibration"),
        *("data.batching", "progress"),
        "placements.base",
        *("models.base", "models.layers"),
    ),
    "tasks": (
        *("models", "data", "metrics", "progress"),
        *("records", "distributed", "norms.base", "placements.base"),
    ),
    # 6
    "train": (
        *("tasks.base", "probes.base", "records", "metrics", "machine", "distributed"),
        *("data.batching", "progress", "config.files", "norms.model"),
    ),
    # 7
    "studies": (
        *("config", "records", "metrics.glossary"),
        *("train.sinks.console", "train.numerics"),
    ),
    "config": ("machine",),
    "reports": ("records", "metrics", "studies", "config.files"),
    "notebook": ("records", "reports"),
    # every page of results has one shell
    "claims": ("records", "metrics", "studies", "reports.page", "config.files"),
}
# 7 and 8: what puts a run together and what people call may import all that is below.
FREE = (
    "train.build",
    "train.preflight",
    "train.run",
    "train.loaded",
    "train.export",
    "bench",
    "inspect",
    "commands",
    "cli",
    "__main__",
    "",
)

TORCHLESS = (
    "records",
    "studies",
    "metrics",
    "machine",
    "config",
    "cli",
    "progress",
    "commands",
    "reports",
    "claims",
    "notebook",
    "",
)
# where hydra and omegaconf may appear
CONFIGURED = ("config", "train.build", "train.run", "commands")


def name_of(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def walk(node):
    """Walk a syntax tree but for what only a type checker reads."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from walk(child)


def imports(path):
    """Return the dotted names that a file imports when it runs, functions included."""
    names = set()
    for node in walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def inner(path):
    """Return the modules of the package that a file imports."""
    found = set()
    for name in imports(path):
        if name.split(".")[0] != "normlab":
            continue
        inside = name.removeprefix("normlab").strip(".")
        while inside not in MODULES:  # the last part is a name in a module
            inside = inside.rpartition(".")[0]
        found.add(inside)
    return found


def below(name, top):
    return name == top or name.startswith(top + ".")


def row_of(name):
    rows = [row for row in (*MAY_IMPORT, *FREE) if below(name, row) or name == row]
    assert rows, f"normlab.{name} stands in no row of the import table: give it one"
    return max(rows, key=len)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_only_what_its_row_allows(name):
    row = row_of(name)
    if row in FREE:
        return
    home = row.split(".")[0]
    for imported in inner(MODULES[name]):
        allowed = below(imported, home) or any(below(imported, a) for a in MAY_IMPORT[row])
        assert allowed, f"normlab.{name} imports normlab.{imported}"


def test_the_import_table_has_no_way_back():
    def reachable(row, seen):
        for allowed in MAY_IMPORT.get(row, ()):
            if allowed not in seen:
                seen.add(allowed)
                reachable(allowed, seen)
                reachable(allowed.split(".")[0], seen)
        return seen

    for row in MAY_IMPORT:
        home = row.split(".")[0]
        assert not any(below(other, home) for other in reachable(row, set())), row


@pytest.mark.parametrize(
    ("names", "homes"),
    [
        (("hydra", "omegaconf"), CONFIGURED),
        (("torch.distributed",), ("distributed",)),
        (("tensorboard", "torch.utils.tensorboard"), ("train.sinks.tensorboard",)),
        (
            ("wandb",),
            (*(f"train.sinks.wandb{part}" for part in ("", "_server")), "commands"),
        ),
    ],
)
def test_some_imports_have_few_homes(names, homes):
    for name, path in MODULES.items():
        for imported in imports(path):
            if any(below(imported, top) for top in names):
                assert any(below(name, home) for home in homes), f"normlab.{name}: {imported}"


# Where a file may be written without `atomic_write`: into a folder that is renamed as a whole, a
# log that is appended to, what a benchmark throws away, and how far a run is.
WRITERS = (
    *("data.encoded", "data.prepare", "data.iwslt", "data.cache", "data.vocabulary"),
    *("train.sinks.files", "studies.local"),
    *("bench.cost", "train.checkpoint"),
    *("data.cifar10", "train.export"),
)


def writes(path):
    """Return what a file writes by itself, each with its line."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        call = ast.unparse(node.func)
        words = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
        words += [key.value.value for key in node.keywords if isinstance(key.value, ast.Constant)]
        modes = [word for word in words if isinstance(word, str) and set(word) <= set("rwxabt+")]
        opened = call.endswith("open") and any(set(mode) & set("wxa+") for mode in modes)
        if opened or call.endswith((".write_text", ".write_bytes", "torch.save", "np.save")):
            found.append((node.lineno, call))
    return found


def test_no_module_is_above_400_lines():
    long = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
    assert {name: lines for name, lines in long.items() if lines > 400} == {}


def test_every_file_is_written_whole_or_not_at_all():
    alone = {name: found for name, path in MODULES.items() if (found := writes(path))}
    assert set(alone) <= set(WRITERS), alone
    assert {"data.encoded", "studies.local", "train.checkpoint"} <= set(alone)


def test_what_a_model_is_made_of_is_asked_of_the_model():
    declared = ("normlab.models.base",)
    for name, path in MODULES.items():
        tree = ast.parse(path.read_text("utf-8"))
        parts = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module not in declared
            for alias in node.names
            if str(node.module).startswith("normlab.models")
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "isinstance",
                "issubclass",
            ):
                asked = {each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)}
                assert below(name, "models") or not asked & parts, (
                    f"normlab.{name}: {asked & parts}"
                )


def test_torch_distributed_is_not_used_by_its_long_name():
    users = [n for n, path in MODULES.items() if "torch.distributed" in _code(path)]
    assert users == ["distributed"]


def _code(path):
    """Return the dotted attribute chains of a file, without its comments and strings."""
    tree = ast.parse(path.read_text("utf-8"))
    chains = (ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return " ".join([*chains, *imports(path)])


def test_the_loop_knows_no_concrete_task_norm_or_probe():
    for name, path in MODULES.items():
        if row_of(name) == "train":
            concrete = {
                m
                for m in inner(path)
                if m.split(".")[0] in ("tasks", "norms", "probes", "placements", "models")
            }
            assert concrete <= {"tasks.base", "probes.base", "norms.model"}, name


def loaded_after(code, *arguments, cwd=ROOT):
    """Return the modules that a new interpreter has loaded after some code."""
    program = f"{code}\nimport sys\nprint('\\n' + ' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=cwd, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_torch_is_out_of_reach_of_what_must_answer_at_once():
    light = [n for n in MODULES if n != "__main__" and any(below(n, t) for t in TORCHLESS if t)]
    names = ["normlab", *(f"normlab.{name}" for name in light)]
    loaded = loaded_after("import " + ", ".join(names))
    assert set(names) <= loaded
    assert "torch" not in loaded


@pytest.mark.parametrize(
    ("call", "unwanted"),
    [
        (
            "from normlab import compose; compose(['norm=bn', 'scale=cpu'])",
            {"torch"},
        ),
        ("import normlab; normlab.compose; dir(normlab)", {"torch"}),
        ("import normlab; normlab.records", {"torch", "hydra", "omegaconf"}),
        ("from normlab.cli import main; main(['--help'])", {"torch", "hydra", "omegaconf"}),
        ("from normlab.cli import main; main(['ls', 'norm'])", {"torch", "hydra", "omegaconf"}),
        ("import normlab.metrics.spread, normlab.claims.ledger", {"scipy"}),
        ("from normlab.cli import main; main(['ls', 'study'])", {"scipy"}),
        ("from normlab.cli import main; main(['nothing'])", {"torch", "hydra", "omegaconf"}),
        ("from normlab.cli import main; main(['train', '--help'])", {"torch"}),
    ],
)
def test_a_light_call_loads_nothing_heavy(call, unwanted):
    assert not loaded_after(call) & unwanted


@pytest.fixture(scope="module")
def with_new_norm(tmp_path_factory):
    """Return a copy with new norms, pictures, a model and a cell: a file and a config each."""
    copy = tmp_path_factory.mktemp("project")
    for folder in ("normlab", "configs"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignored)
    (copy / "normlab" / "norms" / "peak.py").write_text(NEW_NORM.lstrip())
    (copy / "configs" / "norm" / "peak.yaml").write_text(NEW_CONFIG)
    (copy / "normlab" / "norms" / "running_peak.py").write_text(NEW_STATEFUL_NORM.lstrip())
    (copy / "configs" / "norm" / "running_peak.yaml").write_text(NEW_STATEFUL_CONFIG)
    assert "norm check fresh" in call(copy, "norm", "new", "fresh")
    (copy / "normlab" / "data" / "stripes.py").write_text(NEW_SOURCE.lstrip())
    (copy / "configs" / "task" / "stripes.yaml").write_text(NEW_TASK_CONFIG)
    (copy / "normlab" / "models" / "one_layer.py").write_text(NEW_MODEL.lstrip())
    (copy / "configs" / "model" / "one_layer.yaml").write_text(NEW_MODEL_CONFIG)
    (copy / "normlab" / "models" / "leaky.py").write_text(NEW_CELL.lstrip())
    (copy / "configs" / "model" / "leaky.yaml").write_text(NEW_CELL_CONFIG)
    text = copy / "text"
    text.mkdir()
    for split, count in (("train", 24), ("valid", 4), ("test", 4)):
        for language, words in (("de", "der Hund sieht Baum"), ("en", "the dog sees tree")):
            lines = [" ".join(words.split()[: 2 + i % 3]) + f" {i % 7} ." for i in range(count)]
            (text / f"{split}.{language}").write_text("\n".join(lines) + "\n")
    return copy


def call(project, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "normlab", *arguments], cwd=project, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_new_norm_is_listed(with_new_norm):
    listed = json.loads(call(with_new_norm, "list", "norm", "--json"))
    (peak,) = [option for option in listed if option["name"] == "peak"]
    assert peak["description"] == "Each token over its largest magnitude."


def test_a_new_norm_trains_in_every_site_and_placement(with_new_norm):
    values = {"peak": "norm.floor=0.01", "fresh": "norm.eps=0.01"}
    for place, (name, value) in zip(("pre", "post"), values.items(), strict=True):
        call(
            with_new_norm,
            *("train", f"norm={name}", f"placement={place}", f"norm@ffn_inner_norm={name}"),
            *(f"norm@embedding_norm={name}", f"norm@decoder_norm={name}", value),
            *("task=translation", "data_dir=text", "task.corpus.source_language=de"),
            *("task.corpus.target_language=en", "task.vocab_size=60", "batch_size=6"),
            *("model.dim=16", "model.ffn_dim=32", "model.num_heads=2", "model.encoder_layers=1"),
            *("model.decoder_layers=1", "budget.steps=3", "validate.every=3", "sink=[]"),
            *("observe.threads=1", "device=cpu", "task.test_search.beam=2"),
        )
    records = list((with_new_norm / "runs").rglob("record.json"))
    assert len(records) == 2
    for path in records:
        record = json.loads(path.read_text())
        assert record["outcome"]["status"] == "finished"
        name = record["config"]["choices"]["norm"]
        assert 0.01 in record["config"]["norm"].values()
        assert "test/bleu" in record["scores"]
        assert values.pop(name)
    assert "peak" in call(with_new_norm, "compare")


def test_a_new_norm_with_a_state_and_a_backward_of_its_own_trains_and_is_probed(with_new_norm):
    call(
        with_new_norm,
        *("train", "norm=running_peak", "task=translation", "data_dir=text", "runs_dir=stateful"),
        *("task.corpus.source_language=de", "task.corpus.target_language=en"),
        *("task.vocab_size=60", "batch_size=6", "model.dim=16", "model.ffn_dim=32"),
        *("model.num_heads=2", "model.encoder_layers=1", "model.decoder_layers=1"),
        *("budget.steps=4", "validate.every=2", "validate.average=2", "sink=[jsonl]"),
        *("observe.threads=1", "device=cpu", "task.test_search.beam=2", "probe=full"),
        *("observe.probe.tid.every=1", "observe.log_every=2"),
    )
    (path,) = (with_new_norm / "stateful").rglob("record.json")
    record = json.loads(path.read_text())
    assert record["outcome"]["status"] == "finished" and "test/bleu" in record["scores"]
    lines = path.with_name("metrics.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if "train/loss" in row]
    assert all(row["train/penalty"] > 0 for row in rows)
    assert any("tid/" in key for row in rows for key in row), sorted(rows[-1])


def test_new_images_and_a_new_model_with_a_convolution_train(with_new_norm):
    call(
        with_new_norm,
        *("train", "task=stripes", "norm=running_peak", "runs_dir=pictures", "probe=full"),
        *("batch_size=20", "optim.lr=0.1", "schedule=constant", "schedule.warmup=1"),
        *("budget.steps=20", "validate.every=20", "sink=[]", "observe.threads=1", "device=cpu"),
    )
    (path,) = (with_new_norm / "pictures").rglob("record.json")
    record = json.loads(path.read_text())
    assert record["outcome"]["status"] == "finished" and record["data"]["label"] == "stripes"
    assert {"test/accuracy", "test/eval_stats_batch/accuracy"} <= set(record["scores"])
    assert "stability/independence/icc/layer" in record["stability"]


def test_a_new_recurrent_cell_with_values_of_its_own_reads_pictures_and_text(with_new_norm):
    call(
        with_new_norm,
        *("train", "task=stripes", "model=leaky", "norm=bn_position", "norm@cell_norm=peak"),
        *("model.leak=0.25", "optim.lr=0.1", "schedule=constant", "schedule.warmup=1"),
        *("runs_dir=cell", "probe=full", "batch_size=20", "budget.steps=6", "validate.every=6"),
        *("sink=[]", "observe.threads=1", "device=cpu"),
    )
    (path,) = (with_new_norm / "cell").rglob("record.json")
    record = json.loads(path.read_text())
    assert record["outcome"]["status"] == "finished"
    assert "test/eval_stats_recalibrated/accuracy" in record["scores"]
    program = (
        "import torch\n"
        "from normlab.train.build import build_model\n"
        "from normlab.config.compose import compose, to_dict\n"
        "from normlab.models.base import Longest, Text\n"
        "from normlab.norms.base import Stream\n"
        "class Words:\n"
        "    def spec(self):\n"
        "        return Text(vocab=9, pad_id=0, longest=Longest(4, '', ''), causal=True)\n"
        "model = build_model(to_dict(compose(['task=lm', 'model=leaky'])), Words()).eval()\n"
        "ids = torch.tensor([[3, 4, 5], [6, 7, 8]])\n"
        "state = model.start_decoding(2, max_length=3)\n"
        "steps = torch.stack([model.decode_step(i, state) for i in ids.unbind(1)], 1)\n"
        "torch.testing.assert_close(steps, model.project(model(ids, Stream())))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=with_new_norm, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_new_norm_is_in_reach_of_the_contracts_of_all_norms(with_new_norm):
    checked = call(with_new_norm, "norm", "check", "fresh", "peak", "running_peak")
    assert checked.count("norm fresh: ") == checked.count("norm peak: ") == 1
    assert "violated" not in checked
    assert "norm.floor has no row in normlab/config/constraints.py" in " ".join(checked.split())
    program = (
        "import normlab, torch\n"
        "from normlab.config.registry import option_names\n"
        "assert 'peak' in option_names('norm')\n"
        "norm = normlab.make_norm('peak', 6, floor=0.5)\n"
        "x = torch.randn(2, 3, 6)\n"
        "y = norm(x, normlab.Stream(torch.ones(2, 3, dtype=torch.bool)))\n"
        "torch.testing.assert_close(y, x / x.abs().amax(-1, keepdim=True).clamp(min=0.5))\n"
        "assert norm.incremental and norm.batch_independent\n"
        "print(normlab.__file__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=with_new_norm, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith(str(with_new_norm)), "the copy was not what ran"
