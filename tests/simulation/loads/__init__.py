"""Clients under which a cluster is broken: one file for each kind of load."""
