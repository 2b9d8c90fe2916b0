"""What can go wrong for a user of `flo`: each error is one line that says what to do, and an exit status."""


class UserError(Exception):
    """The base; `status` is what the process exits with."""

    status = 1


class Unknown(UserError, ValueError):
    """A name that stands for nothing; the message suggests the nearest."""

    status = 2


class StageFailed(UserError, RuntimeError):
    """A stage did not start, or was not healthy in time. The message ends with what it wrote to stderr."""

    def __init__(self, what: str, stderr: str) -> None:
        super().__init__(f"{what}\n{stderr}".strip())
        self.what, self.stderr = what, stderr.strip()

    def __str__(self) -> str:
        """All of a traceback, but of a usage message just the line that says what is wrong."""
        if "Traceback" in self.stderr or not self.stderr:
            return super().__str__()
        return f"{self.what}: {self.stderr.splitlines()[-1]}"
