"""From `key=value` to the checked config of a run: options, keys, ranges, errors that say more.

What was typed passes through these modules, in this order:

overrides.py, trackers.py    the words, written out for Hydra; refuse a flag, a list, a bad quote
compose.py                   Hydra merges the folders of options with what was typed, and refuses
                             options and keys that do not exist
settle.py                    Hydra's config becomes a run's, pass by pass: precision, options, short
                             keys, recipe, `sites.py`, batch size, folders; refuses a missing value,
                             and settings of which one would be ignored
run_config.py                its types and its plain form; refuses classes and interpolations, keys
                             that a changed or recorded run does not have, a value outside the range
                             of its key, and values in conflict
instantiation.py             the objects, when training begins; refuses what the annotations of the
                             option's class exclude, before anything is built

What they know: `keys.py` what is true of a key, such as its range (`value_range.py`); `schema.py`
the keys of every run; `registry.py` the options; `experiments.py` files of settings.
"""
