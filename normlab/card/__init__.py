"""The report card of a norm: a fixed battery of examinations, each cached, one page and one row."""
