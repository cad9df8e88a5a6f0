"""Results as tables, prose, figures and HTML. Returns them; `files` and `cli` write them."""
