"""Names in backticks in docstrings and messages exist and can be found by their readers."""

import ast
import re
from functools import cache

import pytest

from tests.test_architecture import MODULES, ROOT, below, inner, package_of, tree

NAME = re.compile(r"`([a-z]\w+)(?:\(\))?`")  # a single letter is part of a formula
OF_SELF = re.compile(r"`self\.([a-z_]\w*)")
OUTSIDE = {
    *("kill", "nohup", "sha256sum", "torchrun", "fnmatch", "tokenizers", "addcmul", "weight_norm"),
    *("decoder_input_ids", "pad_token_id", "variance_epsilon", "batchnorm", "gradnorm"),
    *("qk_norm_scale", "qk_rmsnorm", "zho_Hans", "cmn", "sr", "sr_Latn", "pt", "por", "pt_BR"),
    *("kr", "cn", "no", "inf", "weight", "longtable"),
}
"""Commands, languages, words of YAML and LaTeX, and names in other people's code."""
MADE = {
    *("b32", "mlm_loss", "best_loss", "bleu_tok", "length_ratio", "bleu_by_batch_size"),
    *("mine", "option", "folds"),
}
"""Names made by an f-string, a reader's file, a key of a composed config, a model's own method."""
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def text_of(node):
    """Return the text of a node that is a bare string, such as a docstring."""
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
    return None


@cache
def nodes_of(name):
    """Return the nodes of a module's syntax tree."""
    return [*ast.walk(tree(name))]


def names_in(nodes, *, locals_too):
    """Return the names that some code defines and uses, and its one-word strings."""
    names = set()
    for each in nodes:
        match each:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Attribute(attr=name):
                names.add(name)
            case ast.keyword(arg=str(name)):
                names.add(name)
            case ast.alias(name=name, asname=other):
                names |= {*name.split("."), other}
            case ast.Constant(value=str(text)) if re.fullmatch(r"[\w./@*<>=-]+", text):
                names |= {*re.findall(r"[A-Za-z_]\w*", text)}
            case ast.Constant(value=str(text)) if re.fullmatch(r"[a-z_0-9 ]+", text):
                names |= {*text.split()}
            case ast.Name(id=name) | ast.arg(arg=name) if locals_too:
                names.add(name)
    return names


@cache
def offered(name):
    """Return the names that a module defines, without locals and parameters."""
    names = names_in(nodes_of(name), locals_too=False)
    classes = [node for node in nodes_of(name) if isinstance(node, ast.ClassDef)]
    for statement in (statement for node in (tree(name), *classes) for statement in node.body):
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            names |= {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}
    return names


@cache
def members(name):
    """Return the methods and attributes of the objects in a module."""
    nodes = nodes_of(name)
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    methods = {n.name for node in classes for n in node.body if isinstance(n, ast.FunctionDef)}
    return methods | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


@cache
def keys():
    """Return the keys, options and groups of the config, and the names of modules."""
    files = [*(ROOT / "configs").rglob("*.yaml")]
    texts = (file.read_text("utf-8") for file in files)
    words = {word for text in texts for word in re.findall(r"([a-z_]\w*):", text)}
    words |= {part for file in files for part in (file.stem, file.parent.name)}
    return words | {name.rpartition(".")[2] for name in MODULES}


def unknown_names(name):
    """Yield line and name of everything a module puts in backticks that exists in no code."""
    near = [name, *inner(name)]
    if MODULES[name].name == "__init__.py":  # it describes its folder
        near += [module for module in MODULES if below(module, name)]
    known = keys().union(OUTSIDE, MADE, *map(offered, near))
    documented = [node for node in nodes_of(name) if isinstance(node, DOCUMENTED)]
    texts = [(text_of(n), n.lineno) for node in documented for n in node.body]
    for line, word in ((line, w) for text, line in texts for w in NAME.findall(text or "")):
        if word not in known:  # it may be a local of the function, or of the class's methods
            blocks = [n for n in tree(name).body if n.lineno < line <= n.end_lineno]
            blocks = blocks or [tree(name)]
            if word not in names_in(ast.walk(blocks[0]), locals_too=True):
                yield line, word
    attributes = set[str]().union(*map(members, near))
    for node in nodes_of(name):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (
                (node.lineno, w) for w in OF_SELF.findall(node.value) if w not in attributes
            )


@pytest.mark.parametrize("package", sorted({package_of(name) for name in MODULES}))
def test_every_name_in_backticks_exists_in_the_code(package):
    unknown = {
        f"{name}:{line}": word
        for name in MODULES
        if package_of(name) == package
        for line, word in unknown_names(name)
    }
    assert unknown == {}


FILE = re.compile(r"`([\w/]+\.py)`")
THEIRS = {"mask_syncbatchnorm.py", "MABN.py", "unified_normalization.py", "optimization.py"}
"""Files in the code of a norm's authors, or in Hugging Face's."""


def test_every_file_in_backticks_exists():
    folders = (ROOT / name for name in ("normlab", "tests", "scripts"))
    paths = [f"/{path.relative_to(ROOT)}" for folder in folders for path in folder.rglob("*.py")]
    unknown = {
        f"{name}: {file}"
        for name, path in MODULES.items()
        for file in FILE.findall(path.read_text("utf-8"))
        if file not in THEIRS and not any(each.endswith(f"/{file}") for each in paths)
    }
    assert unknown == set()
