"""From a recording to a Program: lowering, fusion, schedule, memory plan, C, cache, source map."""
