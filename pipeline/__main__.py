"""`python -m pipeline` is `bildwort`."""

from pipeline.cli import run

if __name__ == "__main__":
    run()
