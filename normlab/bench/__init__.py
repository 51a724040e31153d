"""Speed: steps of training, norms by themselves, and what a whole run would take."""
