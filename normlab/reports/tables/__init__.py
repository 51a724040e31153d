"""Computes the table of some runs: scores, comparisons of rows, the answer and the notes.

- `score_table.py`: `ScoreTable`, its rows (`ScoreRow`) and their entries (`Entry`)
- `build_table.py`: `build_table` computes it from `Arrangement`
- `comparison.py`: which rows may be compared, on which seeds, their difference, and the best row
- `standing.py`: whether a row is above, below or not clearly different from the baseline
- `main_result.py`: what the table answers; `answer.py`: the sentence above it that says so, with
  points and differences in the words of `answer_words.py`
- `notes.py`: the notes below it
- `axes.py`: the axes of a grid, and where a row lies on them
"""
