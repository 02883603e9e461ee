"""An MCP server for operators' assistants: it looks by default, and changes only what was previewed.

Needs `pyromq[mcp]`. Tools are functions over `pyromq.admin`; `docs/howto/mcp.md` lists them.
"""
