"""What is asked, and when. A workload is an iterable of requests that is the same for the same seed, whatever the server does."""
