"""Where publishers should be, closer to their subscribers: POP and GRAPE. How they move stands in `broker.moves`."""
