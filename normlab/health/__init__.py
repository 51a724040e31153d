"""Examinations of a model without training it: one question a file, gathered in a health sheet."""
