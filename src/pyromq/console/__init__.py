"""The web console: one poller per cluster fills a snapshot; pages show it as HTML and as JSON, and ask
`admin` for the rest.
"""
