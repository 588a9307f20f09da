"""The backend that computes nothing: shapes and dtypes flow, contents do not exist."""

from glasshouse.backends.stub.backend import Backend

__all__ = ["Backend"]
