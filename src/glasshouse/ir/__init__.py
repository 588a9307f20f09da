"""The IR of Python programs: graphs of calls that print as Python, are rewritten, and run."""

from glasshouse.ir.graph import IRGraph
from glasshouse.ir.graph_module import GraphModule, Interpreter, Transformer
from glasshouse.ir.match import Match, find_matches, replace_pattern
from glasshouse.ir.node import IRNode
