"""The errors that a user can fix."""

CRASHED = 70
"""Exit status of a command that ends with an exception other than `UserError` (EX_SOFTWARE)."""


class UserError(ValueError):
    """An error in the user's command line, files or folders.

    Its message is one line that names the key, file or line and says what to do. The command line
    prints only this line. Any other exception is a bug in normlab or in the user's own code: the
    command line prints one line that says where it happened, and then the traceback.
    """


class SettingError(UserError):
    """A `UserError` about a run's settings. `keys` are the config keys that may have caused it."""

    def __init__(self, message: str, *keys: str) -> None:
        super().__init__(message)
        self.keys = keys
