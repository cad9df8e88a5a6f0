"""What a network sees: prices and pages over HTTP, MQTT, OpenADR, and public series."""
