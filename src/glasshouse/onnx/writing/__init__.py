"""From functions to ONNX's protobuf."""
