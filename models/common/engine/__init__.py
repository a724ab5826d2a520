"""What every autoregressive family is driven by: a batch that sequences join and leave between frames."""
