"""Stage report, and tables of papers: every figure as a row, and views of the rows."""
