"""`gh.profile(…)` is a call, and `import glasshouse.profile` the package."""

from glasshouse.base.callable_module import make_callable
from glasshouse.profile.profiler import profile

make_callable("glasshouse.profile", profile)
