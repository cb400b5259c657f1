"""Stage report, and the tables of papers: every figure is a row of the results; tables are views of the rows."""
