// Package tidegate is the Go client of Tidegate: language-model turns over bidirectional gRPC streams.
//
//	client, err := tidegate.NewClient("127.0.0.1:8500")
//	...
//	defer client.Close()
//	turn := client.Chat(ctx, tidegate.User("Why is the sky blue?"))
//	for event, err := range turn.Events() {
//		if err != nil {
//			return err
//		}
//		fmt.Print(event.GetTextDelta().GetText())
//	}
//
// A turn ends with its context, and leaving the loop over its events early cancels it at the worker. A [Session] runs many turns on one
// stream, [RunTools] carries out the tools that the model calls, and [ChatInto] reads the answer into a struct. Whatever fails is an
// [*Error].
//
// # How it works
//
// A [Turn] is what the caller asked for; an attempt is one try at it, under a number of its own on a stream. A stream has one goroutine,
// which hands each attempt its events and takes the stream up again when its connection is lost, so that the turns on it notice nothing.
// When an attempt fails before the answer has begun, and the router says that repeating helps, the turn makes another one, three in all.
// A router that is about to go lets its turns finish; new ones are started on a new stream over a new connection.
package tidegate
