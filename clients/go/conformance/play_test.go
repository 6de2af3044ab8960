package conformance_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"tidegate.dev/sdk/go/tidegate"

	"google.golang.org/grpc/metadata"
)

// player plays one case with the SDK.
type player struct {
	harness     *harness
	played      testCase
	marker      string
	traceparent string
	client      *tidegate.Client
	session     *tidegate.Session
	ran         []toolCall
}

// city is what structured cases ask for.
type city struct {
	Name       string `json:"name"`
	Population int    `json:"population"`
}

// play does what the case says, and gives what the caller of each turn saw.
func (p *player) play(ctx context.Context) (seen []sight, err error) {
	if err := p.do(p.played.Before); err != nil {
		return nil, err
	}
	p.client, err = tidegate.NewClient(p.harness.Target)
	if err != nil {
		return nil, err
	}
	defer p.client.Close()
	if p.played.Session != nil {
		p.session = p.client.Session(ctx, p.parts(*p.played.Session)...)
		defer p.session.Close()
	}
	for _, t := range p.played.Turns {
		if err := p.do(t.Before); err != nil {
			return nil, err
		}
		saw, err := p.playTurn(ctx, t)
		if err != nil {
			return nil, err
		}
		seen = append(seen, saw)
	}
	return seen, nil
}

// do has the harness do these actions, or note them.
func (p *player) do(actions []action) error {
	for _, a := range actions {
		body := maps.Clone(a)
		body["marker"] = p.marker
		if err := p.harness.post("/do", body, &struct{}{}); err != nil {
			return err
		}
	}
	return nil
}

func (p *player) chatter() tidegate.Chatter {
	if p.session != nil {
		return p.session
	}
	return p.client
}

// parts are options as the SDK has them.
func (p *player) parts(o options) (parts []tidegate.Part) {
	if o.Model != "" {
		parts = append(parts, tidegate.Model(o.Model))
	}
	if o.MaxOutputTokens != nil {
		parts = append(parts, tidegate.MaxOutputTokens(*o.MaxOutputTokens))
	}
	if o.Retries != nil {
		parts = append(parts, tidegate.Retries(*o.Retries))
	}
	if o.MaxRounds != nil {
		parts = append(parts, tidegate.MaxRounds(*o.MaxRounds))
	}
	if p.played.ResumeForS != nil {
		parts = append(parts, tidegate.ResumeFor(seconds(*p.played.ResumeForS)))
	}
	return append(parts, tidegate.Stop(o.Stop...))
}

func (p *player) playTurn(ctx context.Context, t turn) (saw sight, err error) {
	if t.DeadlineS != nil {
		limited, cancel := context.WithTimeout(ctx, seconds(*t.DeadlineS))
		defer cancel()
		ctx = limited
	}
	if t.Trace {
		ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", p.traceparent)
	}
	parts := append(p.parts(t.options), tidegate.User(p.marker+string(t.Text)))
	begun := time.Now()
	switch {
	case t.Tools != nil:
		saw, err = p.runTools(ctx, append(parts, p.tools(t.Tools)...))
	case t.Into != "":
		saw, err = p.readInto(ctx, append(parts, tidegate.As[city]()))
	case t.Via == "text":
		saw, err = p.readText(ctx, parts)
	default:
		saw, err = p.readEvents(ctx, parts, t.Actions)
	}
	within := time.Since(begun).Seconds()
	saw.WithinS = &within
	if told, ok := errors.AsType[*tidegate.Error](err); ok {
		saw.Error, err = describe(told), nil
	}
	return saw, err
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func finishName(reason tidegate.FinishReason) *string {
	return new(strings.TrimPrefix(reason.String(), "FINISH_REASON_"))
}

func describe(e *tidegate.Error) *failure {
	f := &failure{Code: codeName(e.Code), Reason: e.Reason, Retryable: e.Retryable}
	for _, v := range e.Violations {
		f.Fields = append(f.Fields, v.Field)
	}
	return f
}
