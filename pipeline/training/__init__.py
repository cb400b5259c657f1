"""Lightning's trainer for a job, what it logs, and the models that it leaves."""
