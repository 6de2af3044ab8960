package tidegate

import (
	"slices"
	"time"

	tidegatev1 "tidegate.dev/sdk/go/tidegate/v1"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Part is a piece of what a turn is made of: a [Message] or a whole conversation ([Messages]), a [Tool], or a [Setting].
type Part interface {
	addTo(r *request)
}

// request is all that defines a turn, and how it is tried.
type request struct {
	spec      *tidegatev1.TurnSpec
	tools     map[string]Tool
	retries   int
	rounds    int
	resumeFor time.Duration
	fault     *Error // what cannot be right about it
}

// newRequest puts a turn together; later parts win over earlier ones.
func newRequest(lists ...[]Part) *request {
	r := &request{spec: &tidegatev1.TurnSpec{}, tools: map[string]Tool{}, retries: 2, rounds: 8, resumeFor: 10 * time.Second}
	for _, part := range slices.Concat(lists...) {
		part.addTo(r)
	}
	return r
}

// check finds what would end the whole stream if it were sent.
func (r *request) check() *Error {
	if _, err := proto.Marshal(r.spec); err != nil && r.fault == nil {
		return badUse("spec", "all texts must be UTF-8")
	}
	return r.fault
}

type option func(r *request)

func (o option) addTo(r *request) { o(r) }

// Retries is how many more times a turn is tried, after the time that the router says, when it failed before its answer began. Without
// it: 2.
func Retries(more int) Part {
	return option(func(r *request) { r.retries = more })
}

// ResumeFor is how long the turns of a session, or the turn of a chat, outlive a lost connection, while it is made again. 0 ends them with
// it. Without it: 10 seconds.
func ResumeFor(d time.Duration) Part {
	return option(func(r *request) { r.resumeFor = d })
}

// MaxRounds is how many answers [RunTools] asks for at most. Without it: 8.
func MaxRounds(most int) Part {
	return option(func(r *request) { r.rounds = most })
}

// Setting is a part that changes the turn's specification; the functions that return one are shorthands.
type Setting func(spec *tidegatev1.TurnSpec)

func (s Setting) addTo(r *request) { s(r.spec) }

// Model names the model; without it the router's default answers.
func Model(name string) Setting {
	return func(spec *tidegatev1.TurnSpec) { spec.Model = name }
}

// MaxOutputTokens limits the answer.
func MaxOutputTokens(most uint32) Setting {
	return func(spec *tidegatev1.TurnSpec) { spec.MaxOutputTokens = &most }
}

// MaxWait limits the time that the turn may wait for a worker. Without it the context's deadline does.
func MaxWait(longest time.Duration) Setting {
	return func(spec *tidegatev1.TurnSpec) { spec.MaxWait = durationpb.New(longest) }
}

// Priority sets the turn's place among those of its own tenant that wait.
func Priority(priority tidegatev1.Priority) Setting {
	return func(spec *tidegatev1.TurnSpec) { spec.Priority = priority }
}

// Stop gives texts that end the answer and are not part of it.
func Stop(texts ...string) Setting {
	return func(spec *tidegatev1.TurnSpec) { spec.Stop = append(spec.Stop, texts...) }
}

// Temperature is how varied the answer is: 0 is greedy, at most 2.
func Temperature(value float32) Setting {
	return sampling(func(s *tidegatev1.Sampling) { s.Temperature = &value })
}

// TopP keeps the smallest set of tokens whose probability reaches this.
func TopP(share float32) Setting {
	return sampling(func(s *tidegatev1.Sampling) { s.TopP = &share })
}

// TopK keeps this many of the most likely tokens.
func TopK(count uint32) Setting {
	return sampling(func(s *tidegatev1.Sampling) { s.TopK = &count })
}

// Seed makes the same request give the same answer on the same worker profile.
func Seed(seed uint64) Setting {
	return sampling(func(s *tidegatev1.Sampling) { s.Seed = &seed })
}

// Logprobs asks for the log probability of each token.
func Logprobs() Setting {
	return func(spec *tidegatev1.TurnSpec) { spec.Logprobs = true }
}

// Format makes the answer conform to a form. [Schema] gives the one of a Go type.
func Format(format *tidegatev1.ResponseFormat) Setting {
	return func(spec *tidegatev1.TurnSpec) { spec.ResponseFormat = format }
}

// ToolMode says whether the model calls tools. Without it the model decides.
func ToolMode(mode tidegatev1.ToolMode) Setting {
	return func(spec *tidegatev1.TurnSpec) {
		spec.ToolChoice = &tidegatev1.ToolChoice{Choice: &tidegatev1.ToolChoice_Mode{Mode: mode}}
	}
}

// ForceTool makes the model call this tool, once.
func ForceTool(name string) Setting {
	return func(spec *tidegatev1.TurnSpec) {
		spec.ToolChoice = &tidegatev1.ToolChoice{Choice: &tidegatev1.ToolChoice_Tool{Tool: name}}
	}
}

func sampling(set func(*tidegatev1.Sampling)) Setting {
	return func(spec *tidegatev1.TurnSpec) {
		if spec.Sampling == nil {
			spec.Sampling = &tidegatev1.Sampling{}
		}
		set(spec.Sampling)
	}
}
