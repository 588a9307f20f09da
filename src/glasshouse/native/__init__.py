"""The C of the compiled engine: vector mathematics that generated code includes."""
