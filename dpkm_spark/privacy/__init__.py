"""What privacy costs and how noise is drawn: budget, mechanisms, transcript."""
