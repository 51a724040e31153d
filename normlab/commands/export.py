"""`normlab export`: a trained model as a file for other tools, or a Weights & Biases workspace."""

import argparse

from normlab.commands._arguments import (
    as_path,
    as_run,
    command_parser,
    conditions,
    one_run,
    say_stopped,
)
from normlab.config.folders import CONFIG_DIR
from normlab.errors import UserError

_EXAMPLES = """examples:
  normlab export runs/toy-bn-pre-1a2b3c4d5e/seed1 --fold
  normlab export RUN --out FOLDER
  normlab export --wandb --where task=mlm --where norm=ln,bn

model.pt holds a state dict under `model` (torch.load(..., weights_only=True)),
the config, and the names of folded norms. --fold folds norms that are fixed in
eval (batch norm, its variants, and TaperNorm) into adjacent layers. model.pt is
written only if the outputs agree.

--wandb saves a workspace that compares norms, and needs a login: `wandb login`,
or WANDB_API_KEY.
"""


def main(argv: list[str]) -> int:
    """Write the file or save the workspace, and print its location."""
    parser = command_parser("export", _EXAMPLES)
    add = parser.add_argument
    add("run", nargs="?", type=as_run, metavar="RUN", help="a finished run")
    add("--fold", action="store_true", help="fold batch norm, its variants, and TaperNorm")
    add("--out", type=as_path, help="the folder to write to; default: RUN/export")
    add("--wandb", action="store_true", help="save a workspace at W&B instead")
    add("--project", help="with --wandb; default: the project of the wandb sink")
    add("--entity", help="with --wandb: user or team; default: the login's own")
    add("--name", default="normlab", help="name of the workspace; default: normlab")
    where = "with --wandb: only runs with these values; may be repeated"
    add("--where", action="append", default=[], metavar="KEY=VALUE[,VALUE]", help=where)
    arguments = parser.parse_args(argv)
    if arguments.wandb:
        return _workspace(arguments)
    if arguments.run is None:
        raise UserError("name a run, such as runs/EXPERIMENT/seed1, or add --wandb")
    from normlab.training.loaded import export

    run = one_run(arguments.run)
    exported = export(run, arguments.out or run / "export", fold=arguments.fold)
    say_stopped(run, exported.record)
    folded = f"{len(exported.folded)} norms folded, " if arguments.fold else ""
    print(f"wrote {exported.file}: {folded}outputs agree to {exported.apart:.1g}")
    return 0


def _workspace(arguments: argparse.Namespace) -> int:
    """Save a workspace; UserError for a missing login or package, or if W&B refuses."""
    import wandb
    import yaml
    from wandb.errors import Error

    from normlab.training.wandb import find_login, reach
    from normlab.training.wandb_workspace import workspace

    login = find_login()
    if login.source is None:
        raise UserError(f"no login for {login.host}: run `wandb login` or set WANDB_API_KEY")
    sink = yaml.safe_load((CONFIG_DIR / "sink" / "wandb.yaml").read_text("utf-8"))
    filters = conditions(arguments.where)
    where = {key: [*map(yaml.safe_load, of.split(","))] for key, of in filters.items()}
    try:
        reach(login.host, float(sink["connect_seconds"]))
        entity = arguments.entity or sink["entity"] or wandb.Api().default_entity
        if not entity:
            raise UserError(f"the login at {login.host} has no default entity: add --entity NAME")
        project = arguments.project or sink["project"]
        saved = workspace(entity=entity, project=project, name=arguments.name, where=where)
        saved.save()
    except OSError as error:
        raise UserError(f"{login.host} does not answer ({error}): nothing was saved") from None
    except Error as error:
        raise UserError(f"W&B refused: {str(error).strip()}; nothing was saved") from error
    print(saved.url)
    return 0
