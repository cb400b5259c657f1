"""The order of things: reads recipes, wires data to modules, writes artifacts. Knows no formula."""
