"""Questions about a model that normlab built, one file per question.

`findings.py` asks them (`normlab.inspect_run`, `inspect_config`) of a model from
`built_model.py`, and `inspect_json.py` puts the findings into `inspect.json`. Questions look into
the model with `recorded_pass.py`; questions about the loss measure it with `held_out_loss.py`.
"""
