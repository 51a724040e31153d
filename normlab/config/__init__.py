"""From `key=value` to the checked config of a run: options, keys, ranges, helpful errors.

Command-line arguments pass through these modules, in this order:

folders.py                   adds the folders of the user's own options to `NORMLAB_PATH`.
overrides.py, trackers.py    rewrite the arguments for Hydra. They refuse unknown flags, lists where
                             one option belongs, and unbalanced quotes.
compose.py                   lets Hydra merge the folders of options with the arguments. It refuses
                             options and keys that do not exist.
settle.py                    turns Hydra's config into a run's, pass by pass: precision, options,
                             short keys, recipe, `sites.py`, batch size, folders. It refuses a
                             missing value, and two settings if one of them would be ignored.
run_config.py                applies the types of the schema. It refuses classes, interpolations,
                             keys that the run does not have, values outside the range of their
                             key, and values that conflict.
instantiation.py             builds the objects when training begins. Before it builds anything, it
                             refuses values that the annotations of an option's class exclude.

They use `keys.py` and `schema.py`, which define the properties of each key, such as its range
(`value_range.py`), `registry.py`, which reads options, `comments.py`, which reads their
descriptions, and `experiments.py`, which reads files of settings.
"""
