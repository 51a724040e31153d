"""From `key=value` to the checked config of a run: options, keys, ranges, helpful errors.

Command-line arguments pass through these modules, in this order:

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

They use `keys.py`, which has the properties of each key, such as its range (`value_range.py`),
`schema.py`, which has the keys of every run, `registry.py`, which reads the options, and
`experiments.py`, which reads files of settings.
"""
