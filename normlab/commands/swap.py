"""`normlab swap --hf MODEL norm=NAME --text FILE`: put other norms into a trained language model.

`--fold` folds what is redundant in norms into the weights next to them, instead of swapping norms.
"""

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from normlab.commands._arguments import Parser, as_path, as_text, command_parser
from normlab.config.overrides import check_arguments, check_given_once
from normlab.config.registry import option_settings
from normlab.errors import UserError
from normlab.terminal import at_work, print_prose, print_table

_EXAMPLES = """\
examples:
  normlab swap --hf gpt2 norm=dyt --text lines.txt
  normlab swap --hf FOLDER norm=gn groups=8 --text lines.txt --train all
  normlab swap --hf FOLDER norm=rms --sites '*.ln_1' --text lines.txt
  normlab swap --hf gpt2 norm=none --text lines.txt --steps 2000 --out FOLDER
  normlab swap --hf gpt2 --fold --untie

Each new norm is first fitted to the output of the old one. A row is one line of
the text, cut to 128 tokens. The last tenth of the lines, at most 256, is held
out.

--out needs norm=none. A transformers model cannot use a norm other than its
own, but with eps=1e12 and all gains multiplied by 1e6 that norm no longer
divides. This is tried before training; weights are saved in float32.

--fold removes what is exactly redundant, without training: it folds gains into
the next matrix products and turns layer norms into RMS norms, wherever this
leaves the float64 outputs unchanged.
"""
_HELD_OUT, _FEWEST = 256, 20  # lines
_RATES = {"norms": 1e-2, "all": 1e-4}


def main(argv: list[str]) -> int:
    """Swap the norms of a model, adapt it, print the losses, and save it with `--out`."""
    parser = _parser()
    arguments = parser.parse_intermixed_args(argv)

    from omegaconf import OmegaConf

    check_given_once(arguments.settings)
    check_arguments(arguments.settings)
    options: Any = OmegaConf.to_container(OmegaConf.from_dotlist(arguments.settings))
    if arguments.fold:
        _check_fold(parser, arguments)
        return _fold(arguments)
    arguments.lr = _RATES[arguments.train] if arguments.lr is None else arguments.lr
    _check(parser, arguments, options)
    return _swap(arguments, **options)


def _check_fold(parser: Parser, arguments: Namespace) -> None:
    """Exit with an error if anything is set that folding does not use."""
    used = {"hf", "fold", "untie", "trust_remote_code", "settings"}
    others = {key: value for key, value in vars(arguments).items() if key not in used}
    if arguments.settings or any(v != parser.get_default(key) for key, v in others.items()):
        parser.error("--fold can be combined only with --hf, --untie and --trust-remote-code")


def _check(parser: Parser, arguments: Namespace, options: Mapping[str, Any]) -> None:
    """Exit with an error if arguments are missing or contradict each other."""
    if arguments.untie:
        parser.error("--untie needs --fold")
    if not options.get("norm"):
        parser.error("pass norm=NAME, such as norm=dyt")
    if arguments.text is None:
        parser.error("pass --text FILE, with lines to train on")
    if arguments.steps < 1 or not 0 <= arguments.taper < arguments.steps or not arguments.lr > 0:
        parser.error("--steps must be at least 1, --taper less than --steps, and --lr above 0")
    out: Path | None = arguments.out
    if out is None:
        return
    if options["norm"] != "none":
        parser.error("--out needs norm=none: a transformers model cannot use another norm")
    if out.exists():
        parser.error(f"--out {out} exists; choose a new folder")
    if not out.absolute().parent.is_dir():
        parser.error(f"--out {out}: the folder {out.parent} does not exist")


def _parser() -> Parser:
    parser = command_parser("swap", _EXAMPLES)
    add = parser.add_argument
    add("settings", nargs="*", metavar="key=value", help="norm=NAME and its settings")
    text = "a folder saved by transformers, or an id on huggingface.co"
    add("--hf", required=True, type=as_text, metavar="MODEL", help=text)
    add("--text", type=as_path, metavar="FILE", help="file with lines to train on")
    text = "fold norms into weights, which keeps the outputs; needs no norm=NAME"
    add("--fold", action="store_true", help=text)
    add("--untie", action="store_true", help="with --fold: copy weights that embeddings share")
    text = "pattern of the paths of norms to replace; default: all"
    add("--sites", default="*", type=as_text, metavar="PATTERN", help=text)
    add("--train", choices=("norms", "all"), default="norms", help="what to train; default: norms")
    add("--steps", type=int, default=200, metavar="N", help="training steps; default: 200")
    text = "initial steps over which old and new norms are blended; default: 0"
    add("--taper", type=int, default=0, metavar="N", help=text)
    text = "learning rate; default: 1e-2 for --train norms, 1e-4 for --train all"
    add("--lr", type=float, metavar="RATE", help=text)
    add("--seed", type=int, default=0, help="seed for the order of the lines and for masks")
    add("--out", type=as_path, metavar="FOLDER", help="a new folder for the adapted model")
    add("--trust-remote-code", action="store_true", help="run Python code from the model's folder")
    return parser


def _fold(arguments: Namespace) -> int:
    with at_work("folding the norms"):
        from normlab.any_model.loading.load import load_transformers
        from normlab.any_model.surgery.fold import fold_norms

        loaded = load_transformers(arguments.hf, trust=arguments.trust_remote_code)
        folded = fold_norms(loaded.model, loaded.batches, untie=arguments.untie)
    print(folded)
    return 0


def _swap(arguments: Namespace, norm: str, **options: Any) -> int:
    with at_work("loading the model"):
        from normlab.any_model.loading.load import nonblank_lines
        from normlab.any_model.surgery.adapt import Adaptation, LanguageModel, adapt, save
        from normlab.any_model.surgery.swap import check_name, swap

        check_name(norm)
        if unknown := [key for key in options if key not in option_settings("norm", norm, "norm")]:
            raise UserError(f"norm={norm} has no setting {unknown[0]}")
        learned, held_out = _split(arguments.text, nonblank_lines(arguments.text))
        language = LanguageModel(arguments.hf, trust=arguments.trust_remote_code)
    sizes = f"{len(learned):,} lines to train on, {len(held_out):,} held out"
    print_prose(f"{language.kind}; {arguments.text}: {sizes}{language.note}")
    with at_work("fitting the norms"):
        original, held = language.model, [*language.batches(held_out, arguments.seed)]
        losses = {"original": language.loss(original, held)}
        calibration = language.batches(learned, arguments.seed)
        swapped = swap(original, norm, sites=arguments.sites, calibrate=calibration, **options)
        losses["fitted"] = language.loss(model := swapped.model, held)
        if arguments.out:
            save(model, language, held[0], arguments.out, keep=False)
    print(f"\n{swapped}\n")
    with at_work("adapting"):
        adaptation = Adaptation(
            arguments.steps, arguments.lr, arguments.train == "all", arguments.taper
        )
        trained = adapt(model, original, language.shuffled(learned, arguments.seed), adaptation)
        losses[f"adapted in {arguments.steps:,} steps"] = language.loss(model, held)
    columns = ("norms", "held-out loss")
    print_table(columns, [(k, f"{v:.4f}") for k, v in losses.items()], numeric=columns[1:])
    print_prose(f"{trained:,} of {sum(p.numel() for p in model.parameters()):,} weights trained")
    if arguments.out:
        change = save(model, language, held[0], arguments.out, keep=True)
        print_prose(
            f"saved in {arguments.out}; after loading it, the logits differ by {change:.1g}"
        )
    return 0


def _split(text: Path, lines: list[str]) -> tuple[list[str], list[str]]:
    """Return the lines to train on and the held-out lines. Raise UserError if there are too few."""
    if len(lines) < _FEWEST:
        raise UserError(f"--text {text} has {len(lines)} lines, but at least {_FEWEST} are needed")
    held_out = min(_HELD_OUT, len(lines) // 10)
    return lines[:-held_out], lines[-held_out:]
