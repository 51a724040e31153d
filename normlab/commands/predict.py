"""`normlab predict RUN < in > out`: translate or continue text with a finished run."""

import sys

from normlab.commands._arguments import Parser, add_run, command_parser
from normlab.commands._loading import load
from normlab.config.overrides import check_given_once
from normlab.errors import UserError
from normlab.reports.run_paths import one_run
from normlab.terminal import at_work

_EXAMPLES = """\
examples:
  echo "Der alte Mann schläft." | normlab predict runs/toy-ln-pre-.../seed1
  normlab predict RUN task.test_search.beam=1 < in.de > out.en
  echo "The module provides" | normlab predict RUN --tokens 50

A translation run translates each line of the input. For a language model, the
input is one text; it is printed with its continuation.
"""
_SAMPLING = {"tokens": 100, "temperature": 0.8, "top_k": None, "seed": 1}


def main(argv: list[str]) -> int:
    """Read standard input and write the translations or continuations to standard output."""
    arguments = _parser().parse_intermixed_args(argv)
    check_given_once(arguments.changes)
    chosen = {n: value for n in _SAMPLING if (value := getattr(arguments, n)) is not None}
    from normlab.data.text_files import decoded
    from normlab.models.decoding import SamplingSettings

    tokens, temperature, top_k, seed = ({**_SAMPLING, **chosen}[name] for name in _SAMPLING)
    settings = SamplingSettings(tokens, temperature, top_k)
    if not 0 <= seed < 2**63:
        raise UserError(f"--seed={seed} must be 0 or more")
    if sys.stdin is None:
        raise UserError("standard input is closed; pass text, as in normlab predict RUN < FILE")
    if sys.stdin.isatty():
        print("reading text from the terminal; end with Ctrl-D", file=sys.stderr)
    # Read as bytes, so that only a newline ends a line, and errors name lines that are not UTF-8.
    lines = list(decoded(sys.stdin.buffer, origin="standard input"))
    folder = one_run(arguments.run)
    run = load(folder, arguments.changes, weights=arguments.weights, data=False)
    if (translate := getattr(run.task, "translate", None)) is not None:
        if chosen:
            flag = next(iter(chosen)).replace("_", "-")
            raise UserError(f"--{flag} is for language models, but this run translates; omit it")
        with at_work("translating"), run.as_tested() as model:
            translations = translate(model, lines)
        print("\n".join(translations))
    elif (generate := getattr(run.task, "generate", None)) is not None:
        prompt = "\n".join(lines)
        with at_work("generating"), run.as_tested() as model:
            text = generate(model, prompt, settings, seed=seed)
        print(prompt + text)
    else:
        task = run.record.choice("task")
        raise UserError(
            f"{arguments.run} has task={task}, which generates no text; use normlab eval"
        )
    return 0


def _parser() -> Parser:
    parser = command_parser("predict", _EXAMPLES)
    add_run(parser, "a finished run")
    add = parser.add_argument_group("language models").add_argument
    add("--tokens", type=int, help="maximum number of tokens; default: 100")
    add("--temperature", type=float, help="0 picks the most likely token; default: 0.8")
    add("--top-k", type=int, help="sample from the k most likely tokens")
    add("--seed", type=int, help="random seed; default: 1")
    return parser
