"""Explaining a norm from its axes, its module and what the module really computes."""
