"""Running work: jobs and their artifacts on disk, processes and locks, files, costs."""
