"""The errors that a user can fix."""

CRASHED = 70
"""Exit status of a command that ends with any other exception than a `UserError` (EX_SOFTWARE)."""


class UserError(ValueError):
    """An error in what a user typed, wrote in a file or keeps in a folder.

    Its message is one line that names the key, file or line and says what to do. The command line
    prints only this line. Any other exception is a bug, of normlab or of the user's own code, and
    gets one line with its place, then its traceback.
    """
