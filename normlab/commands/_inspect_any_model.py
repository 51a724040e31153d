"""`normlab inspect --hf` and `--module`: examine a model that normlab did not build."""

from argparse import ArgumentTypeError, Namespace
from collections.abc import Mapping
from typing import Any

from normlab.commands._arguments import Parser, as_path, as_text
from normlab.terminal import at_work, in_colour, print_prose, print_section

_FLAGS = ("hf", "module", "text", "trust_remote_code", "inputs", "causal", "all", "html")
_CONVENTIONS = ("rows", "positions", "mask")
_KINDS = ("real", "padding", "lengths")


def add_any_model(parser: Parser) -> None:
    """Add the flags for a model and its inputs."""
    add = parser.add_argument_group("any model").add_argument
    text = "a folder saved by transformers, or an id on huggingface.co"
    add("--hf", type=as_text, metavar="MODEL", help=text)
    text = "lines of text to run it on; default: built-in sentences"
    add("--text", type=as_path, metavar="FILE", help=text)
    add("--trust-remote-code", action="store_true", help="run Python code from the model's folder")
    text = "a model, or a function that returns one"
    add("--module", type=as_text, metavar="MODULE:NAME", help=text)
    text = "batches of its inputs, or a function that returns them"
    add("--inputs", type=as_text, metavar="MODULE:NAME", help=text)
    text = "axis of the rows in the main input, such as 1 for [position, row]"
    add("--rows", type=int, metavar="AXIS", help=text)
    text = "axis of the positions in the main input, such as 2 for [row, x, position]"
    add("--positions", type=int, metavar="AXIS", help=text)
    text = (
        "the input that marks padding, and what it holds: real (1 = real token), padding "
        "(1 = padding) or lengths (the real length of each row)"
    )
    add("--mask", type=_mask, metavar="NAME|KIND|NAME=KIND", help=text)
    add("--causal", action="store_true", help="check that no position depends on later ones")
    add("--all", action="store_true", help="also ask the slow questions")
    add("--html", type=as_path, metavar="FILE", help="write the findings to an HTML page")


def names_any_model(arguments: Namespace) -> bool:
    """Return whether any flag for a model that normlab did not build is set."""
    return bool(_conventions(arguments)) or any(map(vars(arguments).get, _FLAGS))


def _conventions(arguments: Namespace) -> dict[str, Any]:
    """Return the axes and the mask of the inputs, as set by the flags."""
    values = vars(arguments)
    return {name: values[name] for name in _CONVENTIONS if values[name] is not None}


def inspect_any_model(parser: Parser, arguments: Namespace) -> int:
    """Examine the model and print the findings. Return 1 if one is broken or failed."""
    conventions = _conventions(arguments)
    _check(parser, arguments, conventions)
    with at_work("loading the model"):
        from normlab.any_model.inspect import inspect
        from normlab.any_model.loading.load import import_model, load_transformers
        from normlab.findings.summary import FAILING

        if arguments.hf:
            trust = arguments.trust_remote_code
            model, batches, note = load_transformers(arguments.hf, arguments.text, trust=trust)
        else:
            model, batches, note = import_model(arguments.module, arguments.inputs)
    with at_work("examining the model"):
        checks = arguments.only or ("quick", "all")[arguments.all]
        conventions["causal"] = arguments.causal or None
        report = inspect(model, batches, checks=checks, **conventions)
    if note and not arguments.json:
        print_prose(note)
    shown = report.to_json() if arguments.json else f"{report.text(in_colour=in_colour())}\n"
    print(shown, end="")
    norms = report.findings.get("norms")
    if norms and norms.table.rows and not arguments.json:
        columns, rows = norms.table
        text = "The axes that each norm pools over were found by changing single values."
        print_section("Norms", text, columns, rows)
    if arguments.html:
        report.to_html(arguments.html)
        print("" if arguments.json else f"written to {arguments.html}\n", end="")
    return int(any(finding.verdict in FAILING for finding in report.findings.values()))


def _check(parser: Parser, arguments: Namespace, conventions: Mapping[str, Any]) -> None:
    """Exit with an error for arguments that contradict each other."""
    if arguments.words or arguments.where or arguments.data or arguments.out:
        parser.error(
            "--hf and --module cannot be combined with RUN, key=value, --where, --data or --out"
        )
    one = bool(arguments.hf) != bool(arguments.module)
    if not one or bool(arguments.module) != bool(arguments.inputs):
        parser.error("pass --hf MODEL, or --module MODULE:NAME with --inputs MODULE:NAME")
    if arguments.module and (arguments.text or arguments.trust_remote_code):
        parser.error("--text and --trust-remote-code need --hf")
    if conventions and not arguments.module:
        parser.error(f"--{next(iter(conventions))} needs --module")
    if arguments.rows is not None and arguments.rows == arguments.positions:
        parser.error(f"--rows and --positions are both {arguments.rows}; use different axes")
    if arguments.html and arguments.html.is_dir():
        parser.error(f"--html {arguments.html} is a folder; name a file")
    if arguments.html and not arguments.html.absolute().parent.is_dir():
        parser.error(f"--html {arguments.html}: the folder does not exist")


def _mask(text: str) -> Any:
    """Parse `--mask`: the name or position of a mask, its kind, or a name and a kind."""
    name, equals, kind = text.partition("=")
    if not name or (equals and kind not in _KINDS):
        raise ArgumentTypeError(
            f"{text}: expected NAME, KIND or NAME=KIND, where KIND is one of {', '.join(_KINDS)}"
        )
    key = int(name) if name.isdigit() else name
    return {key: kind} if equals else key
