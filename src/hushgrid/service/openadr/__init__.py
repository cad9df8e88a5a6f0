"""The OpenADR 3.1 VTN: prices as events; vens, resources, subscriptions and reports of clients."""
