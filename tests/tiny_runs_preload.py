"""The modules that the fork server of tests/tiny_runs.py imports once, before it forks runs."""

import os

import hydra.main
import sacrebleu
import sacremoses
import torch
import torch._dynamo

import normlab.commands.train
import normlab.data.folder_corpus
import normlab.norms.batch
import normlab.norms.layer
import normlab.tasks.translation
import normlab.training.execution

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # no thread pool, which a fork would lose
torch.set_num_threads(1)

PRELOADED = (hydra.main, sacrebleu, sacremoses, torch._dynamo, normlab)
