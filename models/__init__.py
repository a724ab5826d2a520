"""Model families: one folder each, a card in TOML and the stages that speak it. Knows nothing of queues or HTTP."""
