"""`normlab predict RUN < in > out`: use a finished run on text, as its task does."""

import sys

from normlab.commands._arguments import add_run, command_parser
from normlab.commands._runs import load, one_run
from normlab.commands._terminal import at_work

_EXAMPLES = """\
examples:
  echo "Der alte Mann schläft." | normlab predict runs/toy-ln-pre-.../seed1
  normlab predict RUN task.test_search.beam=1 < in.de > out.en
  echo "The module provides" | normlab predict RUN --tokens 50
  normlab predict RUN --temperature 0 norm.eval_stats=batch < prompt.txt

A run of translation makes one line of each line of the input. A language model continues the input
as one text, and shows it as it comes.
"""


def main(argv: list[str]) -> int:
    """Read standard input, write what the model makes of it to standard output."""
    does = "Translate lines of text, or continue a text, with a finished run."
    parser = command_parser("predict", does, _EXAMPLES)
    add_run(parser, "a finished run")
    text = parser.add_argument_group("language models")
    text.add_argument("--tokens", type=int, default=100, help="how many at most; default: 100")
    text.add_argument(
        "--temperature", type=float, default=0.8, help="0 takes the most likely; default: 0.8"
    )
    text.add_argument("--top-k", type=int, help="draw from the k most likely tokens")
    text.add_argument("--seed", type=int, default=1, help="of what is drawn; default: 1")
    arguments = parser.parse_intermixed_args(argv)
    from normlab.data.corpus import decoded
    from normlab.models.decoding import SamplingSettings

    settings = SamplingSettings(
        max_tokens=arguments.tokens, temperature=arguments.temperature, top_k=arguments.top_k
    )
    if sys.stdin.isatty():
        print("reading text from the terminal; end with Ctrl-D", file=sys.stderr)
    # Lines are read as bytes: only a newline ends one, and what is not UTF-8 is named by its line.
    lines = list(decoded(sys.stdin.buffer, origin="standard input"))
    run = load(one_run(arguments.run), arguments.changes, weights=arguments.weights)
    translate = getattr(run.task, "translate", None)
    generate = getattr(run.task, "generate", None)
    if translate is not None:
        with at_work("translating"), run.runtime.autocast():
            translations = translate(run.model, lines)
        for line in translations:
            print(line)
    elif generate is not None:
        prompt = "\n".join(lines)
        print(prompt, end="", flush=True)
        with run.runtime.autocast():
            for piece in generate(run.model, prompt, settings, seed=arguments.seed):
                print(piece, end="", flush=True)
        print()
    else:
        raise ValueError(
            f"{arguments.run}: a run of task={run.record.choice('task')} makes no text; "
            "normlab eval scores it"
        )
    return 0
