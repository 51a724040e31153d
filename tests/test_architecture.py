"""Rules that keep the package easy to change: its layers, file lengths and imports."""

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "normlab"

# Packages of each layer may import only packages of lower layers, so there are no cycles. A file at
# the root counts as a package, and "" is `normlab/__init__.py`.
LAYERS = (
    ("docstrings", "errors", "formats", "openmp", "templates"),
    ("config", "stages", "dropout", "findings"),
    ("distributed",),
    ("norms", "records"),
    ("placements", "metrics", "data", "terminal"),
    ("models",),
    ("tasks", "probes"),
    ("training", "any_model"),
    ("studies", "reports"),
    ("publishing",),
    ("claims", "notebook"),
    ("inspection",),
    ("claim_checks",),
    ("articles", "demo"),
    ("advice", "blocks"),
    ("commands",),
    ("cli", ""),
    ("__main__",),
)
LONGEST_FILE = 400  # lines
VAGUE = (
    *("found", "own", "said", "says", "given", "told", "there", "here", "seen", "kept"),
    *("made", "named", "wanted", "asked"),
)
"""Words that say nothing about what a local, an argument or an attribute holds."""

WITHOUT_A_TEST_OF_THEIR_NAME = {
    "any_model": 20,
    "articles": 0,
    "claim_checks": 1,
    "claims": 4,
    "commands": 7,
    "config": 11,
    "data": 5,
    "distributed": 1,
    "findings": 1,
    "formats": 1,
    "inspection": 8,
    "metrics": 1,
    "models": 5,
    "norms": 17,
    "notebook": 1,
    "openmp": 1,
    "placements": 6,
    "records": 3,
    "publishing": 1,
    "reports": 11,
    "studies": 4,
    "tasks": 2,
    "templates": 1,
    "training": 10,
}
"""How many modules of each package have no test of their name and place: at most this many."""

TORCHLESS = (
    *("records", "studies", "metrics", "config", "cli", "commands", "reports", "claims"),
    *("publishing", "advice"),
    *(
        "articles",
        "errors",
        "formats",
        "notebook",
        "training.run_folder",
        "training.data_changes",
        "stages",
    ),
    *("blocks", "demo", "terminal"),
)
# Files that may `raise ValueError`: a caller turns it into a `UserError`, or it means a bug.
CHECKED = ("metrics.significance", "records.packed", "studies.published_trials")
CONFIGURED = (
    *("config", "training.execution", "training.run_folder", "studies.hydra_sweep"),
    *("studies.cluster_jobs", "commands"),
)
"""Where hydra and omegaconf may appear."""
# Files that may write without `atomic_write`: that module itself, a folder that is renamed as a
# whole, logs that are appended to, and a run's progress.
WRITERS = (
    *("data.cache", "data.cifar10", "data.encoded", "data.corpus", "data.vocabulary"),
    *("data.prepare_documents", "data.prepare_pairs"),
    *(
        "records.files",
        "studies.process_pool",
        "training.checkpoint",
        "training.export",
        "training.sinks",
    ),
)


def name_of(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def tree(name):
    return ast.parse(MODULES[name].read_text("utf-8"))


def walk(node):
    """Walk a syntax tree, except for code that only a type checker reads."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from walk(child)


@cache
def imports(name):
    """Return the dotted names that a module imports at run time, including inside functions."""
    names = set()
    for node in walk(tree(name)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def inner(name):
    """Return the package's modules that a module imports."""
    found = set()
    for imported in imports(name):
        if imported.split(".")[0] == "normlab":
            inside = imported.removeprefix("normlab").strip(".")
            while inside not in MODULES:  # the last part is a name in a module
                inside = inside.rpartition(".")[0]
            found.add(inside)
    return found


def below(name, top):
    return name == top or name.startswith(top + ".")


def package_of(name):
    return name.split(".")[0]


def test_packages_import_only_from_lower_layers():
    layer_of = {package: number for number, packages in enumerate(LAYERS) for package in packages}
    assert set(map(package_of, MODULES)) <= set(layer_of)
    arrows = {(name, imported) for name in MODULES for imported in inner(name)}
    arrows = {(a, b) for a, b in arrows if package_of(a) != package_of(b)}
    upward = {(a, b) for a, b in arrows if layer_of[package_of(a)] <= layer_of[package_of(b)]}
    assert upward == set()


def test_no_file_is_longer_than_four_hundred_lines():
    lines = {name: len(path.read_text("utf-8").splitlines()) for name, path in MODULES.items()}
    assert {name: count for name, count in lines.items() if count > LONGEST_FILE} == {}


def module_tests(name):
    """Return the file that tests a module: it has the module's name and place."""
    *folders, module = name.split(".")
    return ROOT.joinpath("tests", *folders, f"test_{module.strip('_')}.py")


def test_the_number_of_modules_without_a_test_file_of_the_same_name_does_not_grow():
    missing = Counter(
        package_of(name)
        for name, path in MODULES.items()
        if path.stem not in ("__init__", "__main__") and not module_tests(name).is_file()
    )
    assert missing <= Counter(WITHOUT_A_TEST_OF_THEIR_NAME)


def test_errors_that_users_can_fix_are_not_plain_value_errors():
    plain = {
        name
        for name in MODULES
        for node in walk(tree(name))
        if isinstance(node, ast.Raise) and "ValueError(" in ast.unparse(node)
    }
    assert plain <= set(CHECKED)


def vague_names(name):
    """Return the vague names that a module gives to locals, arguments, attributes or functions."""
    stored = set()
    for node in walk(tree(name)):
        if isinstance(node, ast.FunctionDef):
            stored.add(node.name.strip("_"))
        elif isinstance(node, ast.arg):
            stored.add(node.arg)
        elif isinstance(getattr(node, "ctx", None), ast.Store):
            stored.add(getattr(node, "id", getattr(node, "attr", "")))
    return stored & set(VAGUE)


@pytest.mark.parametrize("package", sorted({package_of(name) for name in MODULES}))
def test_no_variable_attribute_or_function_has_a_vague_name(package):
    vague = {
        name: words
        for name in MODULES
        if package_of(name) == package
        if (words := vague_names(name))
    }
    assert vague == {}


def having(*texts):
    """Return the modules whose source contains all of these texts."""
    return [
        name for name, path in MODULES.items() if all(t in path.read_text("utf-8") for t in texts)
    ]


def test_only_the_config_schema_lists_the_sites_of_norms():
    assert having('"encoder_norm"', '"hidden_norm"') == ["config.schema"]


def test_no_module_is_made_callable():
    assert having("].__class__ = ") == []


def test_runs_are_paired_by_one_module():
    assert having("why_not_paired(") == ["records.pairs"]
    assert having("Pairing.of(") == [
        *("claims.sample", "publishing.literature", "reports.pages.cards"),
        "reports.tables.comparison",
    ]


@pytest.mark.parametrize(
    ("names", "homes"),
    [
        (("hydra", "omegaconf"), CONFIGURED),
        (("torch.distributed",), ("distributed.process_group",)),
        (("tensorboard", "torch.utils.tensorboard"), ("training.tensorboard",)),
        (("wandb",), ("training.wandb", "training.wandb_workspace")),
    ],
)
def test_some_libraries_are_imported_only_by_certain_modules(names, homes):
    for name in MODULES:
        for imported in imports(name):
            if any(below(imported, top) for top in names):
                assert any(below(name, home) for home in homes), f"normlab.{name}: {imported}"


def test_the_training_loop_imports_no_concrete_task_norm_or_probe():
    free = ("training.build", "training.loaded_run", "training.optimizer", "training.start_checks")
    for name in MODULES:
        if package_of(name) == "training" and name not in free:
            packages = ("tasks", "norms", "probes", "placements", "models")
            concrete = {m for m in inner(name) if package_of(m) in packages}
            assert concrete <= {
                "tasks.base",
                "tasks.conditions",
                "probes.base",
                "norms.base",
                "norms.model_norms",
                "distributed.process_group",
            }, name


def test_only_the_models_package_checks_for_classes_of_model_parts():
    for name in MODULES:
        nodes = [*ast.walk(tree(name))]
        froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
        models = [node for node in froms if str(node.module).startswith("normlab.models")]
        others = [node for node in models if node.module != "normlab.models.base"]
        parts = {alias.asname or alias.name for node in others for alias in node.names}
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        checks = [n for n in calls if ast.unparse(n.func) in ("isinstance", "issubclass")]
        asked = {n.id for c in checks for n in ast.walk(c.args[1]) if isinstance(n, ast.Name)}
        assert below(name, "models") or not asked & parts, f"{name}: {asked & parts}"


WRITES = re.compile(r"""\.write_(text|bytes)\(|(torch|np)\.save\(|open\([^)]*"[rb]*[wxa][b+]*\"""")


def test_only_certain_modules_write_files_without_atomic_write():
    alone = {name for name, path in MODULES.items() if WRITES.search(path.read_text("utf-8"))}
    assert alone <= set(WRITERS), alone - set(WRITERS)
    assert {"data.encoded", "studies.process_pool", "training.checkpoint"} <= alone


def loaded_after(code):
    """Return the modules that a new interpreter has loaded after running some code."""
    program = f"{code}\nimport sys\nprint('\\n' + ' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_packages_that_must_start_fast_do_not_import_torch():
    light = [n for n in MODULES if n != "__main__" and any(below(n, t) for t in TORCHLESS)]
    names = ["normlab", *(f"normlab.{name}" for name in light)]
    loaded = loaded_after("import " + ", ".join(names))
    assert set(names) <= loaded and "torch" not in loaded


@pytest.mark.parametrize(
    ("call", "unwanted"),
    [
        ("from normlab import compose; compose(['norm=bn', 'scale=small'])", {"torch"}),
        ("import normlab; normlab.load_records; dir(normlab)", {"torch", "hydra", "omegaconf"}),
        ("from normlab.cli import main; main(['nothing'])", {"torch", "hydra", "omegaconf"}),
        (
            "from normlab import make_norm; make_norm('bn', 4)",
            {"normlab.models", "normlab.training"},
        ),
        ("import normlab.inspection.norm.pooling", {"normlab.models", "normlab.training"}),
        (
            "from normlab.cli import main; main(['claims', '7'])",
            {"hydra", "normlab.claims.evidence"},
        ),
        ("import normlab.metrics.baseline, normlab.claims.ledger", {"scipy"}),
        (
            "from normlab.metrics.significance import p_value, t_interval as t; p_value(t([1, 3]))",
            {"scipy", "numpy"},
        ),
    ],
)
def test_a_light_call_does_not_load_heavy_modules(call, unwanted):
    assert not loaded_after(call) & unwanted


NAMES_OF_TWO_WORDS = {
    *("not measured", "random numbers", "other rows", "other samples", "recurrent norm"),
    "no difference",
}
"""Members of a closed set, such as the verdicts, that are not prose although they have a space."""
OTHERS_TEXTS = ("cli", "data.iwslt")
"""Modules that read other programs' text: torch's out-of-memory message, and an XML tag."""
READS = ("startswith", "endswith", "partition", "rpartition", "split", "rsplit", "find", "index")
MATCHES = ("removeprefix", "removesuffix", "search", "match", "fullmatch")


def texts_of(node):
    """Return the literal texts in an expression: a string, an f-string, or several of these."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    parts = getattr(node, "values", getattr(node, "elts", []))
    return [text for part in parts for text in texts_of(part)]


@pytest.mark.parametrize("package", sorted({package_of(name) for name in MODULES}))
def test_no_code_branches_on_the_text_of_a_message(package):
    read = set()
    for name in MODULES:
        if package_of(name) != package or name in OTHERS_TEXTS:
            continue
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.Compare):
                read |= {text for each in (node.left, *node.comparators) for text in texts_of(each)}
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in READS + MATCHES:
                read |= {text for each in node.args for text in texts_of(each)}
    prose = {text for text in read if re.search(r"[a-z]{2,} [a-z]| \(", text)}
    assert prose <= NAMES_OF_TWO_WORDS


def test_every_name_in_the_code_is_defined():
    """Names in strings do not count, because ruff takes shape strings of jaxtyping for names.

    Names between the braces of an f-string do.
    """
    folders = [ROOT / name for name in ("normlab", "scripts", "tests")]
    command = [
        "ruff",
        "check",
        "--isolated",
        "--select",
        "F821",
        "--output-format",
        "json",
        *folders,
    ]
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True)
    undefined = []
    for finding in json.loads(done.stdout):
        path, start = Path(finding["filename"]), finding["location"]
        source = path.read_text("utf-8")
        line = source.splitlines()[start["row"] - 1]
        in_text = line[: start["column"] - 1].count('"') % 2 == 1
        f_strings = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.JoinedStr)]
        evaluated = {n.id for each in f_strings for n in ast.walk(each) if isinstance(n, ast.Name)}
        if not in_text or finding["message"].split("`")[1] in evaluated:
            undefined.append(f"{path.relative_to(ROOT)}:{start['row']}: {finding['message']}")
    assert undefined == []
