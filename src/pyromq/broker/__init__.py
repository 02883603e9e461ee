"""The broker: takes messages in, keeps them, hands them out."""
