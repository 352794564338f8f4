"""The one exception that ends a command with a message instead of a traceback."""


class UserError(ValueError):
    """A mistake that the user can mend.

    The message says which file or key it is about, what was found, what is allowed and how to
    mend it. ``landbalance`` prints it and exits with status 1.
    """
