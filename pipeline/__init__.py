"""Stages, jobs and commands: reads recipes, connects data and modules, writes artifacts. Holds no formula."""
