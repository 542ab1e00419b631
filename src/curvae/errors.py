"""The error for what a user can fix."""

__all__ = ["CurvaeError"]


class CurvaeError(ValueError):
    """A mistake in what was given: one line that says the cause and the fix.

    The command line prints it and exits with code 2; everything else is a bug and shows a traceback.
    """
