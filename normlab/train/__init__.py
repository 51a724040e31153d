"""Training: the loop, optimizers, evaluation, checkpoints, runtime and sinks."""
