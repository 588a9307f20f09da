"""Every name of PyTorch that its documentation does not promise, and nothing else.

`names` looks them up; each other file has the names of one part of PyTorch, with their purpose and
their first version. Where a later PyTorch has dropped one, the saving or the feature that needs it
is off, with a line under GH_DEBUG=1; code that cannot work without it raises MissingNameError when
it is used. The rest of this storey imports from here, and uses no private
name of its own (tests/structure/test_private_names.py). Read `names`, then any other file."""
