"""The request for recomputation, and the passes that rewrite a graph of both passes to do it."""
