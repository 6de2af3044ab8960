"""What callers may spend: limits of several subjects decided at once, reserved before a turn and settled after it."""
