"""The commands of `mqadmin`: one file per noun, imported only when one of its commands runs."""
