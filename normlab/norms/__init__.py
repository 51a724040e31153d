"""Norms; they differ in the axes they pool statistics over, from none to the whole batch.

`configs/norm/NAME.yaml` names the class of `norm=NAME`; its method `formula` normalizes.
"""
