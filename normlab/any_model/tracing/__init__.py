"""Records what a model does in a forward pass, without changing the model.

Begin with `calls.py`: a `Runner` starts each pass from the same state and records the calls of
modules. `scripted.py` makes this work for scripted modules, and `functional_norms.py` records calls
of functions such as `F.layer_norm`. `restore.py` restores the state; `snapshot.py` restores the
part of it that Python objects hold. `float64.py` runs a pass in float64, and `supported.py` refuses
models that cannot be examined.

`norm_modules.py` decides which modules are norms, and `class_names.py` which kind of module a class
name suggests. `found_norms.py` finds a model's norms and what each one pools over (`reach.py`), by
running each on changed inputs (`norm_trial.py`). `axis_roles.py` finds the roles of the axes of its
input, and `misnomer.py` compares what it pools over with what its name suggests.
"""
