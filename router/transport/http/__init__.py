"""The HTTP door: OpenAI's API with server-sent events, Converse over a WebSocket, and probes; routes.py is the list of it all."""
