"""Everything the console changes, one class for each change; `all_operations.py` is the table of them."""
