"""Norms, which differ in the axes that they pool statistics over: from none to the whole batch.

For `norm=NAME`, `configs/norm/NAME.yaml` gives the class. Its method `formula` normalizes.
"""
