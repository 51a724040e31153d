"""The errors that a user can fix."""

CRASHED = 70
"""Exit status of a command that ends with an exception other than `UserError` (EX_SOFTWARE)."""


class UserError(ValueError):
    """An error in the user's command line, files or folders.

    Its message is one line with the key, file or line, and what to do. The command line prints only
    this line. Any other exception is a bug in normlab or in the user's own code, for which the
    command line prints one line with its place, and then its traceback.
    """


class SettingError(UserError):
    """A `UserError` about settings of a run; `keys` are the keys that may have caused it."""

    def __init__(self, message: str, *keys: str) -> None:
        super().__init__(message)
        self.keys = keys
