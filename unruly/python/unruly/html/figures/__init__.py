"""The pictures: each module turns frames into one kind of figure, and touches no file."""
