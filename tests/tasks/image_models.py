"""Configs and models of image tasks."""

import torch

from normlab.config.compose import compose
from normlab.config.run_config import to_dict
from normlab.training.build import build_model, build_task

SMALL = ("task=digits", "model.width=4", "sink=[jsonl]", "observe.threads=1", "precision=fp64")
VIT = ("task=digits", "model=vit", "model.dim=16", "model.ffn_dim=32", "model.num_heads=2")


def model_of(*overrides):
    config = to_dict(compose([*overrides]))
    task = build_task(config)
    return build_model(config, task).to(torch.float64), task
