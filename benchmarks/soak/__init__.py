"""Half an hour of full load while brokers come and go: does anything grow, or stay behind? ``make soak`` runs it."""
