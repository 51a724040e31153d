"""What a model does in one forward pass, without changing the model.

Begin with `calls.py`: a `Runner` starts each pass from the same state and records the calls of
modules and of functional norms (`scripted.py`: of scripted modules, too). `restore.py` restores the
state, and `snapshot.py` has the part of it that Python objects hold. `float64.py` runs a pass in
float64. `found_norms.py` finds the norms and what they pool over, by running each one on changed
inputs (`norm_trial.py`).
"""
