"""Text that a decoder generates token by token, from the bricks of its steps."""
