"""Norms; they differ in the axes they pool statistics over, from none to the whole batch."""
