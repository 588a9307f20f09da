"""ONNX files as modules, `gh.onnx.load(path)`, and modules as ONNX files, `gh.onnx.export`."""

from glasshouse.onnx.exporting import *
from glasshouse.onnx.loading import *
from glasshouse.onnx.network import Network
