"""How a message is sent: its request, and what comes after a try that failed. No sockets, no clock."""
