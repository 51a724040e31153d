"""Records what a model does in a forward pass, without changing the model.

Begin with `calls.py`: a `Runner` starts each pass from the same state and records the calls of
modules (`scripted.py`: of scripted modules, too); `functional_norms.py` records those of functions
such as `F.layer_norm`. `restore.py` restores the state, and `snapshot.py` has the part of it that
Python objects hold. `float64.py` runs a pass in float64. `norm_modules.py` decides which modules
are norms; `found_norms.py` finds what each norm pools over (`reach.py`), by running it on changed
inputs (`norm_trial.py`), which axes these are (`axis_roles.py`), and whether its name suggests
otherwise (`misnomer.py`).
"""
