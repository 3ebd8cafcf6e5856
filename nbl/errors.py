"""The one exception a user is meant to see."""


class UserError(Exception):
    """A mistake in the input or the call: one sentence with the offending value and what to do.

    The command line prints it without a stack trace and leaves with exit code 2.
    """


def shorten(text: str, limit: int = 40) -> str:
    """A user's text, cut so that it can be part of a sentence."""
    return text if len(text) <= limit else text[:limit] + "..."
