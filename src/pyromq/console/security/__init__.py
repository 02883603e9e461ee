"""Rules about who may do what from where: users, sessions, forgery, headers, limits and the audit log."""
