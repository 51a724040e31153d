"""Norms. They differ in the axes over which they pool statistics, from none to the whole batch.

For `norm=NAME`, `configs/norm/NAME.yaml` gives the class. Its method `formula` normalizes.
"""
