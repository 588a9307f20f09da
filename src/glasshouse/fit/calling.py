"""`gh.fit(…)` is a call, and `import glasshouse.fit` the package."""

from glasshouse.base.callable_module import make_callable
from glasshouse.fit.loop import fit

make_callable("glasshouse.fit", fit)
