package tidegate

import (
	"io"
	"slices"
	"time"

	tidegatev1 "tidegate.dev/sdk/go/tidegate/v1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
)

// run makes the stream's calls, until one ends for good.
func (s *stream) run() {
	defer close(s.done)
	defer s.cancel()
	err := s.converse(s.opening())
	for s.mayResume(err) {
		err = s.converse(s.resumption(), grpc.WaitForReady(true))
	}
	s.end(err)
}

// converse makes one call, and takes its frames until it ends.
func (s *stream) converse(setup *tidegatev1.Setup, options ...grpc.CallOption) error {
	link, err := s.client.links.acquire()
	if err != nil {
		return err
	}
	defer s.client.links.release(link)
	call, err := tidegatev1.NewChatServiceClient(link.conn).Converse(s.client.addHeaders(s.ctx), options...)
	if err != nil {
		return err
	}
	s.begin(call, link, setup)
	for {
		frame, err := call.Recv()
		if err != nil {
			return err
		}
		s.take(frame)
	}
}

func (s *stream) opening() *tidegatev1.Setup {
	if s.resumeFor <= 0 {
		return &tidegatev1.Setup{}
	}
	return &tidegatev1.Setup{ResumeFor: durationpb.New(s.resumeFor)}
}

func (s *stream) resumption() *tidegatev1.Setup {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts++ // an attempt that is late on its way must not take the stream from a newer one
	return &tidegatev1.Setup{Resume: &tidegatev1.Resume{StreamId: s.id, AfterSequence: s.sequence, Attempt: s.attempts}}
}

// begin sends what the router must know first, before anybody else can send.
func (s *stream) begin(call converse, link *link, setup *tidegatev1.Setup) {
	s.sending.Lock()
	defer s.sending.Unlock()
	call.Send(setupMessage(setup))
	messages, last := s.adopt(call, link)
	for _, message := range messages {
		call.Send(message)
	}
	if last {
		s.finish(call)
	}
}

// adopt makes a call the one to send on. It gives the messages that the router may lack, and whether no others will come. A start of which
// nothing has come may be lost or not: the router ignores it if not.
func (s *stream) adopt(call converse, link *link) (messages []*tidegatev1.ConverseRequest, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.call, s.link = call, link
	for _, a := range s.inOrder() {
		if !a.isSeen() {
			messages = append(messages, startMessage(a))
		}
		if a.stopped {
			messages = append(messages, stopMessage(a))
		}
	}
	return messages, s.closed
}

// mayResume tells, after a pause that grows with each try, whether a stream whose call ended like this goes on with another one.
func (s *stream) mayResume(err error) bool {
	tries, resumable := s.isResumable(err)
	if !resumable {
		return false
	}
	select {
	case <-time.After(time.Duration(min(tries, 20)) * 50 * time.Millisecond):
		return true
	case <-s.ctx.Done():
		return false
	}
}

// isResumable is asked for each call that has ended, and tells how many tries have failed since the loss. The time that a stream waits for
// its caller counts from there too.
func (s *stream) isResumable(err error) (tries int, resumable bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.call = nil
	loss := fromCall(err, ReasonStreamLost)
	isElsewhere := slices.Contains(elsewhere, loss.Reason)
	if isElsewhere {
		s.client.links.retire(s.link)
	}
	hasMore := s.id != "" && s.resumeFor > 0 && len(s.running) > 0 && s.ctx.Err() == nil
	if err == io.EOF || !isElsewhere && loss.Reason != ReasonStreamLost || !hasMore {
		return 0, false
	}
	if s.loss != nil {
		s.tries++
		return s.tries, true
	}
	s.loss, s.tries = loss, 0
	if !s.closed {
		s.limitTo(s.resumeFor)
	}
	return 0, true
}

// heard notes that the router answers.
func (s *stream) heard() {
	if s.loss != nil && !s.closed {
		s.unlimit()
	}
	s.loss = nil
}

// end fails what still runs.
func (s *stream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.unlimit()
	reason := s.reason(err)
	for _, a := range s.running {
		if s.leaving && err == io.EOF && !a.isSeen() {
			a.fail(passedOver())
		}
		a.fail(reason)
	}
	clear(s.running)
}

// reason is what turns are told when the stream has ended with this.
func (s *stream) reason(err error) *Error {
	if s.closed {
		return cancelled("the session was closed")
	}
	if s.id == "" {
		return fromCall(err, ReasonUnreachable)
	}
	e := fromCall(err, ReasonStreamLost)
	if s.loss != nil && slices.Contains(lostReasons, e.Reason) {
		return s.loss
	}
	return e
}

// passedOver is the error of a turn that was started while the router was closing the stream in order, and so has not been read.
func passedOver() *Error {
	return &Error{Code: codes.Unavailable, Reason: ReasonStreamLost, Message: "the router was going", Retryable: true}
}

// elsewhere are the reasons of a router that does not take a stream when another one may.
var elsewhere = []string{"DRAINING", "RESUME_UNAVAILABLE"}

// lostReasons are those with which tries to resume end for good.
var lostReasons = append([]string{ReasonStreamLost, "STREAM_UNKNOWN", "STREAM_TAKEN", "RESUME_GAP"}, elsewhere...)
