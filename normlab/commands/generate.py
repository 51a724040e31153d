"""`normlab generate RUN [PROMPT]`: continue a text with a finished language model."""

import argparse
import sys

from normlab.commands._help import HelpFormatter
from normlab.commands._paths import as_path
from normlab.commands._runs import load

HELP = "continue a text with a finished language model"

EXAMPLES = """\
examples:
  normlab generate runs/lm-ln-pre-.../seed1 "The module provides"
  normlab generate RUN --temperature 0 < prompt.txt
  normlab generate RUN "Return a" norm.eval_stats=batch
"""


def main(argv: list[str]) -> int:
    """Print the prompt and, as it comes, what the model makes of it."""
    parser = argparse.ArgumentParser(
        "normlab generate",
        description=HELP,
        epilog=EXAMPLES,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("run", type=as_path, help="a run folder, such as runs/lm-ln-pre-.../seed1")
    parser.add_argument(
        "words",
        nargs="*",
        metavar="PROMPT | key=value",
        help="the text to continue (default: standard input), settings that replace the run's",
    )
    parser.add_argument("--tokens", type=int, default=100, help="how many at most (default: 100)")
    parser.add_argument(
        "--temperature", type=float, default=0.8, help="0 takes the most likely (default: 0.8)"
    )
    parser.add_argument("--top-k", type=int, help="draw from the k most likely tokens")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn (default: 1)")
    parser.add_argument(
        "--weights",
        metavar="NAME",
        help="last, average, best_loss, best_<score>; default: those that were tested",
    )
    arguments = parser.parse_intermixed_args(argv)

    from normlab.data.corpus import split_lines
    from normlab.decoding import SamplingSettings

    settings = SamplingSettings(
        max_tokens=arguments.tokens, temperature=arguments.temperature, top_k=arguments.top_k
    )
    changes = [word for word in arguments.words if _is_change(word)]
    prompts = [word for word in arguments.words if not _is_change(word)]
    if len(prompts) > 1:
        raise ValueError(f"{len(prompts)} prompts: quote the text so that it is one word")
    if prompts:
        prompt = prompts[0]
    else:
        if sys.stdin.isatty():
            print("reading the prompt from the terminal; end with Ctrl-D", file=sys.stderr)
        prompt = "\n".join(split_lines(sys.stdin.buffer.read(), origin="standard input"))
    run = load(arguments.run, changes, weights=arguments.weights)
    generate = getattr(run.task, "generate", None)
    if generate is None:
        raise ValueError(f"{arguments.run} is a run of a task that does not continue text")
    print(prompt, end="", flush=True)
    with run.runtime.autocast():
        for piece in generate(run.model, prompt, settings, seed=arguments.seed):
            print(piece, end="", flush=True)
    print()
    return 0


def _is_change(word: str) -> bool:
    """Tell a setting from a text: a dotted name, an equals sign, a value, and no blank."""
    key, equals, _ = word.partition("=")
    return bool(equals) and key.replace(".", "").replace("_", "").isalnum()
