"""`normlab explain`: norms and placements in words, drawings and tables.

`explain.py` is the entry point. `norm_text.py` describes what `inspection/norm` measured;
`image_layout.py`, `class_marks.py` and `placement_steps.py` show pixels, marks of a class, and
placements.
"""
