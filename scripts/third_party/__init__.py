"""What unruly contains or needs from other people: their notices and the bill of materials."""
