"""Routers that share a Redis exchange streams: any of them can go on with a stream that another one began.

A stream has one home, the router whose session numbers its frames. Its home writes them to a log in Redis, some milliseconds behind what it
sends (journal.py, redis.py), with a little that describes the stream. A caller that comes back to another router makes that one fetch the
stream (moves.py):

- Its home lives, which a lease in Redis tells. It is asked to release the stream: it ends the connection it may still hold, numbers and
  logs what waits in its outbox, and writes the new home's name into the stream's description. Turns that run do not move: the old home goes
  on with them and tells the rest, unnumbered, in a Redis stream of its own, and the new home has a task for each, as if it ran there
  (elsewhere.py). So new turns start where the caller is, a cancel is one message to the old home, and each frame has its number from one
  router only. Should the caller move again, the same happens again, and the rest takes one more step for as long as those turns run.
- Its home is gone. The stream is claimed in Redis, and what the log holds is all there is: its open turns fail as ROUTER_LOST. A home that
  was only cut off finds with its next write that the stream has moved, and ends what it has of it.

Attempts of the caller to resume the stream are numbered, and the number travels with the stream: a home that knows a newer attempt gives it
to no older one.

Turns that wait for tool results do not move: to go on with one takes its prompt, and prompts do not leave their router. Their results
fail as TURN_FORGOTTEN, as do those of turns that were pushed out of a stream's memory; the caller has all that it takes to ask anew.

What is in flight is bounded like the memory of one router: a log is trimmed to what its home holds itself, and everything expires. Prompts
are never in Redis; answers are, in the log and in the rest.
"""
