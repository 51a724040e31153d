"""Carrying a run out, from nothing or a checkpoint, to its record."""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import torch
from filelock import FileLock, Timeout
from msgspec.structs import replace
from omegaconf import DictConfig, OmegaConf

from normlab import distributed
from normlab.config.compose import check_complete, to_dict
from normlab.config.registry import instantiate
from normlab.machine import settled_precision
from normlab.norms.model import ModelNorms
from normlab.probes.base import Probe, ProbeGroup
from normlab.progress import PREPARING, Stage, heard_by
from normlab.records.files import atomic_write, check_is_file, remove_leftovers
from normlab.records.pairs import MadeBy, arithmetic_of, same_code
from normlab.records.record import BudgetUsed, Outcome, RunRecord, Score, fingerprint
from normlab.records.store import CONFIG_FILE, METRICS_FILE, RECORD_FILE, RunStore, run_id
from normlab.tasks.base import Task
from normlab.tasks.translation import samples
from normlab.train.build import (
    build_evaluator,
    build_model,
    build_optimizer,
    build_task,
    calibrate_model,
    check_nodes,
    check_scores,
    make_fast,
)
from normlab.train.checkpoint import Checkpoints, load_checkpoint, reading, start_from
from normlab.train.evaluate import BEST, best_by, judged_by, renamed, score_weights
from normlab.train.loop import LoopSettings, Progress, Trainer
from normlab.train.numerics import NUMERICS, own_norms
from normlab.train.preflight import check_memory, check_start, notices, seeing_future
from normlab.train.runtime import Runtime, check_same_data, check_same_place
from normlab.train.schedule import Schedule
from normlab.train.sinks.base import RunInfo, Sink, SinkGroup
from normlab.train.sinks.files import Live
from normlab.train.stopping import Budget

_WRITTEN = (CONFIG_FILE, RECORD_FILE, METRICS_FILE)


def train(config: DictConfig) -> RunRecord:
    """Carry out a run and return its record; a finished run's record is returned at once.

    Raises ValueError for values that do not fit, damaged files, and a run that other code made.
    """
    return _Run(config).carry_out()


class _Run:
    """One run: its folder, its lock, its parts."""

    def __init__(self, config: DictConfig):
        self.config = to_dict(config)
        check_complete(self.config)
        check_nodes(self.config)
        check_memory(self.config, training=True)
        check_scores(self.config, build_task(self.config))
        self.config["precision"] = settled_precision(
            self.config["precision"], device=self.config["device"]
        )
        self.made_by = NUMERICS, own_norms(self.config)
        self.observe = self.config["observe"]
        self.store = RunStore(self.config["runs_dir"])
        self.folder = self.store.run_dir(self.config)

    def carry_out(self) -> RunRecord:
        """Return the record there is, or train towards one."""
        with ExitStack() as stack:
            runtime = Runtime.start(
                device=self.config["device"],
                precision=self.config["precision"],
                threads=self.observe["threads"],
                rank_timeout=self.observe["rank_timeout"],
            )
            self.runtime = runtime
            self.environment = runtime.environment()
            stack.callback(distributed.shutdown)
            if distributed.is_main():
                self._lock(stack)
            distributed.barrier()
            last = Checkpoints(self.folder / "checkpoints", writes=False).last
            check_same_place(self.folder, (self.made_by, self.environment["commit"]), last)
            done = self._finished()
            if done is not None:
                return done
            return self._train()

    def _lock(self, stack: ExitStack) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            stack.enter_context(FileLock(self.folder / ".lock", timeout=0))
        except Timeout:
            raise ValueError(
                f"{self.folder}: another process is at work on this run; wait for it, or stop it"
            ) from None
        stack.callback(self._leave_no_empty_folder)
        for path in (*self.folder.glob("*.*"), *self.folder.glob("checkpoints/*.pt")):
            if path.name in _WRITTEN or path.suffix == ".pt":
                check_is_file(path)  # a folder in the way would end the run when it writes
        remove_leftovers(self.folder)  # of a process that was killed while it wrote

    def _leave_no_empty_folder(self) -> None:
        """Remove the folder of a run that failed before it kept anything; the lock is held."""
        with suppress(OSError):
            if [path.name for path in self.folder.iterdir()] == [".lock"]:
                (self.folder / ".lock").unlink()
                self.folder.rmdir()
                self.folder.parent.rmdir()  # refused while it holds other seeds

    def _finished(self) -> RunRecord | None:
        """Return the record of an ended run; None if there is something left to do."""
        if not self.store.has(self.folder):
            return None
        record = self.store.read(self.folder)
        if record.outcome.status not in ("finished", "diverged"):
            return None
        self._check_same_world(record.environment.get("world_size"))
        if not self._same_code(record.made_by, record.environment.get("commit")):
            return None
        if record.config.get("data_dir") != self.config["data_dir"]:
            here = build_task(self.config).describe()
            self._check_same_data(record.data.get("checksums"), here, "finished")
        return record

    def _check_same_world(self, size: object) -> None:
        """Refuse the record of another number of processes, whose batches were others."""
        if size != self.runtime.world.size:
            raise ValueError(
                f"{self.folder} was made by {size} processes and this run has "
                f"{self.runtime.world.size}, which makes other batches: start it with as many, or "
                f"use another runs_dir"
            )

    def _same_code(self, made_by: MadeBy, commit: object) -> bool:
        """Tell whether what is there may be used; ValueError where the user must decide."""
        policy = self.observe["other_code"]
        if same_code(made_by, self.made_by) or policy == "accept":
            return True
        if policy == "rerun":
            return False
        numerics, own = self.made_by
        changed = [name for name in own if made_by[1].get(name, own[name]) != own[name]]
        raise ValueError(
            f"{self.folder} was made by other code (numerics {made_by[0]}, commit {commit}) than "
            f"this (numerics {numerics}, commit {self.environment['commit']})"
            f"{': the file has changed of norm=' if changed else ''}{', '.join(changed)}. Its "
            "numbers may differ. observe.other_code=accept takes it as it is, "
            "observe.other_code=rerun trains again, another runs_dir keeps both"
        )

    def _same_arithmetic(self, begun: Sequence[str]) -> bool:
        """Tell whether a run may resume in the arithmetic of here; ValueError where it may not."""
        here = arithmetic_of(self.environment)
        if tuple(begun) == here:
            return True
        if self.observe["other_code"] == "rerun":
            return False
        raise ValueError(
            f"{self.folder} was begun in other arithmetic ({' '.join(begun)}) than there is here "
            f"({' '.join(here)}), and one run is computed in one: go on where it was begun, or "
            f"train anew, here with observe.other_code=rerun, or in another runs_dir, which keeps "
            f"both"
        )

    def _check_same_data(self, checksums: object, data: Mapping[str, Any], state: str) -> None:
        if checksums != data.get("checksums"):
            raise ValueError(
                f"{self.folder} was {state} on other data under the same config (data_dir="
                f"{self.config['data_dir']} now): use another runs_dir, or give the text a name of "
                f"its own where the task has one (task.corpus.name)"
            )

    def _train(self) -> RunRecord:
        sinks = self._sinks()
        with heard_by(sinks.stage):
            try:
                record = self._trained(sinks)
            except BaseException:
                sinks.close(None)
                raise
            sinks.close(record)
        return record

    def _sinks(self) -> SinkGroup:
        """Return where the main rank's figures go."""
        if not distributed.is_main():
            return SinkGroup({})
        named = {
            name: instantiate(node, f"observe.sink.{name}", Sink)
            for name, node in self.observe["sink"].items()
        }
        return SinkGroup({**named, "progress": Live(self.folder)})

    def _trained(self, sinks: SinkGroup) -> RunRecord:
        sinks.stage(Stage(PREPARING))
        config, runtime = self.config, self.runtime
        torch.manual_seed(config["seed"] * 1_000_003 + runtime.world.rank)  # dropout's stream
        task = build_task(config)
        model = build_model(config, task).to(runtime.device, runtime.parameter_dtype)
        check_start(config, task, model, runtime.world)
        norms = ModelNorms(model, freeze_statistics=config.get("freeze_statistics"))
        self.milestones = norms.milestones(config["budget"]["steps"])
        checkpoints = Checkpoints(self.folder / "checkpoints", writes=distributed.is_main())
        data = json.loads(json.dumps(task.describe()))
        check_same_data(data.get("checksums"))
        state = self._state_to_resume(checkpoints, data)
        if state is None:
            calibrate_model(config, model, task, runtime)
            if config.get("start_from") is not None:
                taken = start_from(model, config["start_from"])
                if distributed.is_main():
                    print(taken, file=sys.stderr)
        if self.observe["fast"]:
            make_fast(model, task, runtime.device)
        optimizer = build_optimizer(config, model)
        settings = self._settings(task, data)
        evaluator = build_evaluator(config, task, runtime)
        trainer = Trainer(
            task=task,
            model=model,
            optimizer=optimizer,
            schedule=instantiate(config["schedule"], "schedule", Schedule),
            settings=settings,
            runtime=runtime,
            evaluator=evaluator,
            norms=norms,
            probes=ProbeGroup(
                {
                    name: instantiate(node, f"observe.probe.{name}", Probe)
                    for name, node in self.observe["probe"].items()
                }
            ),
            sinks=sinks,
            checkpoints=checkpoints,
            seed=config["seed"],
        )
        if state is not None:
            with reading(checkpoints.last):
                trainer.resume(state)
        if distributed.is_main():
            with atomic_write(self.folder / CONFIG_FILE) as file:
                file.write(OmegaConf.to_yaml(OmegaConf.create(config)))
        sinks.open(self._info(trainer.progress, settings, data))
        for line in notices(model, self.milestones, config["budget"]["steps"]):
            sinks.note(line)
        record = self._fit_and_test(trainer, data)
        if record.outcome.status == "finished":
            for sample in samples(task, self.folder):
                sinks.sample(*sample)
        return record

    def _fit_and_test(self, trainer: Trainer, data: dict[str, Any]) -> RunRecord:
        outcome = trainer.fit()
        lost = outcome.status == "diverged"
        reached = trainer.targets.scores(lost=lost) | trainer.convergence.scores(lost=lost)
        scores = self._valid_scores(trainer) | reached
        weights: dict[str, int] = {}
        if outcome.status == "finished":
            tested, weights = score_weights(
                trainer.evaluator,
                trainer.model,
                self.config["validate"],
                trainer.checkpoints,
                step=outcome.step,
                outputs=self.folder,
            )
            scores |= tested
        floors = {} if outcome.status == "interrupted" else trainer.task.floors()
        record = replace(
            self._record(trainer, outcome, scores, data), weights=weights, floors=floors
        )
        if distributed.is_main():
            self.store.write(record, self.folder)
        return record

    def _valid_scores(self, trainer: Trainer) -> dict[str, Score]:
        """Return the scores of the validation that goes with the tested weights, and of the best.

        Averaged weights are not validated: with them go the scores of the last validation.
        """
        validate, best = self.config["validate"], trainer.best.found
        scores = dict(trainer.valid_scores)
        if judged_by(validate) == BEST and best:
            scores = dict(best[validate["select_by"]].scores)
        for name in best_by(validate, trainer.task.headline) if validate["best"] and best else ():
            scores |= renamed(best[name].scores, f"{BEST}_{name}")
        return scores

    def _state_to_resume(
        self, checkpoints: Checkpoints, data: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Return the last state, agreed on by all ranks; None for a run that starts anew."""
        if not checkpoints.last.exists():
            return None
        state = load_checkpoint(checkpoints.last)
        with reading(checkpoints.last):
            made_by = state["numerics"], state["own_norms"]
            if not self._same_code(made_by, state["commit"]):
                return None
            if not self._same_arithmetic(state["arithmetic"]):
                return None
            self._check_same_data(state["checksums"], data, "begun")
        return state

    def _settings(self, task: Task, data: Mapping[str, Any]) -> LoopSettings:
        validate = self.config["validate"]
        return LoopSettings(
            budget=Budget(**self.config["budget"]),
            accumulate=self.config["accumulate"],
            clip_norm=self.config["clip_norm"],
            divergence_factor=self.config["divergence_factor"],
            validate_every=validate["every"],
            select_by=validate["select_by"],
            patience=validate["patience"],
            best_by=best_by(validate, task.headline),
            average=validate["average"],
            log_every=self.observe["log_every"],
            checkpoint_every=self.observe["checkpoint_every"],
            targets=task.targets if self.observe["targets"] is None else self.observe["targets"],
            stamp={
                "numerics": self.made_by[0],
                "own_norms": self.made_by[1],
                "commit": self.environment["commit"],
                "arithmetic": list(arithmetic_of(self.environment)),
                "checksums": data.get("checksums"),
            },
        )

    def _info(self, resumed: Progress, settings: LoopSettings, data: Mapping[str, Any]) -> RunInfo:
        return RunInfo(
            run_dir=self.folder,
            run_id=run_id(self.config),
            fingerprint=fingerprint(self.config),
            config=self.config,
            choices=self.config["choices"],
            total_steps=settings.budget.steps,
            resumed_step=resumed.step,
            resumed_rows=resumed.rows,
            unit=data.get("unit", "tokens"),
        )

    def _record(
        self, trainer: Trainer, outcome: Outcome, scores: dict[str, Score], data: dict[str, Any]
    ) -> RunRecord:
        at = trainer.progress
        parameters = {id(p): p.numel() for p in trainer.model.parameters()}
        return RunRecord(
            run_id=run_id(self.config),
            fingerprint=fingerprint(self.config),
            seed=self.config["seed"],
            numerics=NUMERICS,
            own_norms=self.made_by[1],
            config=self.config,
            outcome=outcome,
            scores=scores,
            stability=trainer.probes.summary(),
            budget=BudgetUsed(
                steps=at.step,
                tokens=at.tokens,
                wall_seconds=at.seconds,
                tokens_per_second=at.tokens / at.train_seconds if at.train_seconds else 0.0,
                peak_memory_bytes=self.runtime.peak_memory_bytes(),
            ),
            environment=self.environment,
            data=data,
            params=sum(parameters.values()),
            last_steps=trainer.probes.recent() if outcome.status == "diverged" else {},
            milestones=self.milestones,
            sees_future=seeing_future(trainer.model),
        )
