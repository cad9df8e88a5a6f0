"""HTTP: readings in, prices out, the operator's API and the pages."""
