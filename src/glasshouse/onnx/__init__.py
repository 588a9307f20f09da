"""Networks of ONNX files, as modules: `gh.onnx.load(path)`."""

from glasshouse.onnx.loading import *
from glasshouse.onnx.network import Network
