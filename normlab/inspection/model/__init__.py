"""Questions about a model that normlab built.

Each question is in the file of its name, except for the four questions of `held_out_probes.py`.
`findings.py` asks them about a model from `built_model.py` (`normlab.inspect_run`,
`normlab.inspect_config`), and `inspect_json.py` writes the findings as `inspect.json`. Questions
record what happens inside the model with `recorded_pass.py`, and measure its loss with
`held_out_loss.py`.
"""
