"""`normlab explain`: norms and placements in words, drawings and tables.

`explain.py` is the entry point. `norm_text.py` describes what `inspection/norm` measures.
`image_layout.py` shows the pixels that a norm pools, `class_marks.py` the marks of a class, and
`placement_steps.py` the steps of a placement.
"""
