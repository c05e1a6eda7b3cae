"""How the acknowledged batches of one answer end."""
