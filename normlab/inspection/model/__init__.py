"""Questions about a model that normlab built; each is in a file of its own.

`findings.py` asks them (`normlab.inspect_run`, `inspect_config`) of a model from
`built_model.py`, and `inspect_json.py` puts the findings into `inspect.json`. Questions look into
the model by `recorded_pass.py`; those about the loss measure it by `held_out_loss.py`.
"""
