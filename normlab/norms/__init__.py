"""Norms, which differ in the axes that they pool statistics over, from none to the whole batch."""
