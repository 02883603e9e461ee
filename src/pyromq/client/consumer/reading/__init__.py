"""One queue after the other being read: what is wanted, pulled, held and committed."""
