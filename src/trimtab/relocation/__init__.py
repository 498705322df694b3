"""Moving publishers closer to their subscribers: POP, GRAPE and the migration protocol."""
