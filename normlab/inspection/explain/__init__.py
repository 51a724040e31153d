"""`normlab explain`: norms and placements in words, drawings and tables.

Begin with `explain.py`. `norm_text.py` describes what `inspection/norm` measures, `image_layout.py`
shows the pixels that a norm pools, `class_marks.py` works through the marks of a class, and
`placement_steps.py` shows the steps of a placement.
"""
