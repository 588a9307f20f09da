"""From a recording to a Program: layout, fusion, schedule, memory plan, C and oneDNN."""
