"""How loaded a broker is, what its subscribers receive, and what a move would change."""
