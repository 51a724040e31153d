"""The tables of runs: which runs fill them, how rows compare, and the forms they are written in."""
