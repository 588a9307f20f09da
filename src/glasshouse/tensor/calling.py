"""`gh.tensor(…)` is a call, and `import glasshouse.tensor` the package."""

from glasshouse.base.callable_module import make_callable
from glasshouse.tensor.standard.creation import tensor

make_callable("glasshouse.tensor", tensor)
