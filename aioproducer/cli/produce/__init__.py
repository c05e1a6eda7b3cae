"""``aioproducer produce``: the rows of a file, or of standard input, into a topic."""
