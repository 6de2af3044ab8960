"""Who is calling: API keys, signed tokens and client certificates, each checked into one Principal."""
