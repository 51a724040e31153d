"""The figures of the laboratory: pure functions of records and rows, drawn with matplotlib.

`kinds.KINDS` are the figures of runs by name; `depth.depth` is the figure of the depth study.
matplotlib is loaded when the first figure is drawn.
"""
