"""The name server: who the brokers are, and which of them serve a topic."""
