"""Trace files: writing a recording for Perfetto and HTA, reading it back, merging several.

Read `chrome.py`, which makes each slice of a trace, and `chrome_lines.py`, which writes the same
text fast; `hta.py` has the form for HTA. `recording_data.py` adds the whole recording to a trace,
`read_trace.py` reads a trace of ours or of torch.profiler, and `merging.py` joins traces."""
