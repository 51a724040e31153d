"""Trains a new or resumed run, tests it and writes its record."""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import nn

from normlab.config.instantiation import instantiate, part_of
from normlab.config.machine import MOST_THREADS
from normlab.config.schema import TRACKERS
from normlab.data.cache import cache_key, checksums_of
from normlab.data.source import DataSource
from normlab.distributed import process_group
from normlab.errors import UserError
from normlab.norms.model_norms import ModelNorms
from normlab.records.code import Code, followed_by, joint_code, origin
from normlab.records.files import atomic_write
from normlab.records.record import BudgetUsed, Outcome, RunRecord, Score, arithmetic_of, fingerprint
from normlab.records.store import CONFIG_FILE, RECORD_FILE, run_id, write_vocabulary
from normlab.stages import PREPARING, Stage, heard_by, say
from normlab.tasks.base import Task
from normlab.training.build import (
    build_model,
    build_task,
    build_trainer,
    calibrate_model,
    check_nodes,
    check_scores,
    make_fast,
)
from normlab.training.checkpoint import (
    Checkpoints,
    codes_of,
    load_checkpoint,
    reading,
    start_from,
)
from normlab.training.counters import Counters
from normlab.training.data_changes import OTHER_VOCABULARY, differing_checksums
from normlab.training.evaluate import BEST, best_by, judged_by, renamed, score_weights
from normlab.training.run_folder import RunFolder
from normlab.training.runtime import Runtime, dropout_seed
from normlab.training.sinks import Live, Notice, RunInfo, Sink, SinkGroup
from normlab.training.start_checks import check_start, notices, seeing_future
from normlab.training.stopping import Validations
from normlab.training.trainer import Trainer


def execute(run: RunFolder) -> RunRecord:
    """Train a run and write its record, alone or as one of several processes."""
    config = run.config
    check_nodes(config)
    task = build_task(config)
    check_scores(config, task)
    with ExitStack() as stack:
        stack.enter_context(process_group.lost_ranks_reported())
        stack.callback(process_group.shutdown)
        process_group.initialize(timeout_minutes=config["observe"]["rank_timeout"])
        runtime = Runtime.start(
            device=config["device"],
            precision=config["precision"],
            threads=config["observe"]["threads"],
        )
        sinks = _sinks(run)
        if process_group.is_main():
            stack.enter_context(run.lock())
        files = [run.folder / RECORD_FILE, run.folder / "checkpoints" / "last.pt"]
        sizes = [file.stat().st_size if file.exists() else None for file in files]
        process_group.check_agreement(
            {f"the files in {run.folder}": sizes, "the code": run.made_by}
        )
        if (done := run.finished(processes=runtime.world.size)) is not None:
            return done
        with heard_by(sinks.stage):
            try:
                record = _Execution(run, task, runtime, sinks).execute()
            except BaseException:
                sinks.close(None)
                raise
            sinks.close(record)
            return record


def _sinks(run: RunFolder) -> SinkGroup:
    """Return the sinks of the run's metrics, which only the main rank has.

    With `observe.debug`, W&B and TensorBoard are left out, because nothing of the run is kept.
    """
    if not process_group.is_main():
        return SinkGroup({})
    observe = run.config["observe"]
    nodes = {k: v for k, v in observe["sink"].items() if not (observe["debug"] and k in TRACKERS)}
    sinks = {k: instantiate(node, f"observe.sink.{k}", Sink) for k, node in nodes.items()}
    return SinkGroup({**sinks, "progress": Live(run.folder)})


class _Execution:
    """A run that is being trained, with its task, runtime, sinks and checkpoints."""

    def __init__(self, run: RunFolder, task: Task, runtime: Runtime, sinks: SinkGroup):
        self.run, self.task, self.runtime, self.sinks = run, task, runtime, sinks
        self.config = run.config
        self.environment = runtime.environment()
        self.data: dict[str, Any] = {}
        self.checkpoints = Checkpoints(run.folder / "checkpoints", writes=process_group.is_main())
        self.milestones: dict[str, int] = {}
        self.codes: list[Code] = []
        self.sees_future: list[str] = []
        self.notices: list[Notice] = []  # shown once the sinks are open

    def execute(self) -> RunRecord:
        """Prepare, train, test, and write the record."""
        say(Stage(PREPARING))
        config, steps = self.config, self.config["budget"]["steps"]
        trainer = self._trainer()
        self._check_recordable(trainer)
        if process_group.is_main():
            with atomic_write(self.run.folder / CONFIG_FILE) as file:
                file.write(OmegaConf.to_yaml(OmegaConf.create(config)))
            write_vocabulary(self.run.folder, self.task.vocabulary())
        self.sinks.open(
            RunInfo(
                run_dir=self.run.folder,
                config=config,
                resumed_step=trainer.counters.step,
                resumed_rows=trainer.counters.rows,
                unit=self.data.get("unit", "tokens"),
            )
        )
        for notice in [*self.notices, *notices(trainer.model, self.milestones, steps)]:
            self.sinks.note(notice)
        outcome = trainer.fit()
        record = self._record(trainer, outcome)
        if process_group.is_main():
            self.run.store.write(record, self.run.folder)
        return record

    def _trainer(self) -> Trainer:
        """Build the model and its trainer, from the last checkpoint if there is one."""
        config, model = self.config, self._checked_model()
        self.data = self._description()
        process_group.check_agreement({"the data": self.data.get("checksums")})
        setup: dict[str, Any] = {
            "arithmetic": list(arithmetic_of(self.environment)),
            "checksums": self.data.get("checksums"),
            "vocabulary": cache_key(self.task.vocabulary()),
        }
        if (state := self._state_to_resume(setup)) is None:
            self._initialize(model, setup)
        current = Code(*self.run.made_by, self.environment["commit"], self.environment["dirty"])
        self.codes = followed_by(self.codes, current)
        if config["observe"]["fast"]:
            make_fast(model)
        codes = [code._asdict() for code in self.codes]
        stamp = {**setup, "threads": torch.get_num_threads(), "codes": codes}
        parts = (config, self.task, model, self.runtime, self.checkpoints)
        trainer = build_trainer(*parts, sinks=self.sinks, stamp=stamp)
        if state is not None:
            with reading(self.checkpoints.last):
                trainer.resume(state)
        return trainer

    def _checked_model(self) -> nn.Module:
        """Build the model and check its norms, before the slower description of the data."""
        config, runtime = self.config, self.runtime
        torch.manual_seed(dropout_seed(config["seed"], runtime.world.rank))
        model = build_model(config, self.task).to(runtime.device, runtime.parameter_dtype)
        check_start(config, self.task, model, runtime.world)
        self.sees_future = seeing_future(model)
        norms = ModelNorms(model, freeze_statistics=config["freeze_statistics"])
        self.milestones = norms.milestones(config["budget"]["steps"])
        return model

    def _description(self) -> dict[str, Any]:
        """Return the description of the run's data, as it is read back from a record."""
        description = json.loads(json.dumps(self.task.describe()))
        source = part_of(self.config["task"], "task", DataSource)
        files = source and checksums_of(source.files())
        return {**description, "files": files} if files else description

    def _initialize(self, model: nn.Module, setup: Mapping[str, Any]) -> None:
        """Prepare the model of a run that starts from step 1 (`calibrate_model`, `start_from`)."""
        calibrate_model(self.config, model, self.task, self.runtime)
        if (node := self.config["start_from"]) is not None:
            taken, self.codes = start_from(model, node, setup)
            self.run.check_start(self.codes)
            self.notices.append(Notice(taken))

    def _state_to_resume(self, setup: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the last checkpoint's state, or None if the run starts from step 1.

        `setup` is the plain data that the run writes into its checkpoints. Raises UserError if the
        checkpoint was written with a different setup.
        """
        path = self.checkpoints.last
        if not path.exists():
            return None
        state = load_checkpoint(path)
        with reading(path):
            codes = codes_of(state)
            if not self.run.takes_code(joint_code(codes), [str(code.commit) for code in codes]):
                return None
            if not self.run.takes_arithmetic(state["arithmetic"], setup["arithmetic"]):
                return None
            self.run.refuse_changed(differing_checksums(state["checksums"], setup["checksums"]))
            if state["vocabulary"] != setup["vocabulary"]:
                raise UserError(f"{self.run.folder} {OTHER_VOCABULARY}")
            self._use_threads(state.get("threads"))
        self.codes = codes
        return state

    def _use_threads(self, begun: int | None) -> None:
        """Use as many threads as the run started with, because the order of sums depends on them.

        If the config sets a different number, a warning says that the last bits may differ.
        """
        setting = self.config["observe"]["threads"]
        if setting is None and begun is not None and begun <= MOST_THREADS:
            torch.set_num_threads(begun)
        if begun not in (None, threads := torch.get_num_threads()):
            problem = f"this run was started with {begun} threads and resumes with {threads}"
            text = f"{problem}, so results may differ in their last bits"
            self.notices.append(Notice(text, warning=True))
        self.environment["threads"] = threads

    def _check_recordable(self, trainer: Trainer) -> None:
        """Raise UserError, before step 1, if the run's record could not be read back."""
        record = self._record(trainer, Outcome("interrupted", trainer.counters.step))
        try:
            folder, mend = str(self.run.folder), "rename the option or file behind it"
            RunRecord.from_json(record.to_json(), origin=folder, mend=mend)
        except (UserError, TypeError) as error:
            problem = f"nothing was trained, because the record could not be read back: {error}"
            raise UserError(problem.encode(errors="replace").decode()) from error

    def _record(self, trainer: Trainer, outcome: Outcome) -> RunRecord:
        """Test the weights if the run has finished, and return the record."""
        lost = outcome.status == "diverged"
        scores, weights = self._scores(trainer, outcome)
        parameters = {id(p): p.numel() for p in trainer.model.parameters()}
        numerics, own_norms = joint_code(self.codes)
        return RunRecord(
            run_id=run_id(self.config),
            fingerprint=fingerprint(self.config),
            seed=self.config["seed"],
            numerics=numerics,
            own_norms={**own_norms},
            config=self.config,
            outcome=outcome,
            scores=scores,
            stability=trainer.probes.summary(),
            budget=self._budget_used(trainer.counters),
            environment={**self.environment, **origin(self.codes)},
            data=self.data,
            params=sum(parameters.values()),
            last_steps=trainer.probes.recent() if lost else {},
            milestones=self.milestones,
            sees_future=self.sees_future,
            weights=weights,
            first_loss=trainer.divergence.first_loss,
            floors={} if outcome.status == "interrupted" else self.task.baselines(),
        )

    def _budget_used(self, at: Counters) -> BudgetUsed:
        return BudgetUsed(
            steps=at.step,
            tokens=at.tokens,
            wall_seconds=at.seconds,
            tokens_per_second=at.tokens / at.train_seconds if at.train_seconds else 0.0,
            peak_memory_bytes=self.runtime.peak_memory_bytes(),
        )

    def _scores(
        self, trainer: Trainer, outcome: Outcome
    ) -> tuple[dict[str, Score], dict[str, int]]:
        """Return the scores, and the steps of the tested weights.

        An unfinished run has no tested weights, and no scores before its first validation.
        """
        lost = outcome.status == "diverged"
        chosen = self.config["observe"]["targets"]
        targets = self.task.targets if chosen is None else chosen
        validations = trainer.validations
        if not validations.history and outcome.status == "interrupted":
            return {}, {}
        scores = self._valid_scores(validations)
        scores |= validations.reached(targets, lost=lost) | validations.converged(lost=lost)
        if outcome.status != "finished":
            return scores, {}
        tested, weights = score_weights(
            trainer.evaluator,
            trainer.model,
            self.config["validate"],
            self.checkpoints,
            step=outcome.step,
            outputs=self.run.folder,
        )
        return scores | tested, weights

    def _valid_scores(self, validations: Validations) -> dict[str, Score]:
        """Return the validation scores of the tested weights and of each kind of best weights.

        Averaged weights are never validated, so they get the scores of the last validation.
        """
        if not validations.history:
            return {}
        validate = self.config["validate"]
        judged = judged_by(validate) == BEST
        tested = validations.best(validate["select_by"]) if judged else validations.history[-1]
        scores = dict(tested.scores)
        for name in best_by(validate, self.task.headline) if validate["best"] else ():
            scores |= renamed(validations.best(name).scores, f"{BEST}_{name}")
        return scores
