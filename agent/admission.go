package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// features are what this agent can do beyond the protocol's version.
var features []string

// call answers a CALL: REFUSED, NOT_NOW, or the attempt it stands for, which is
// started unless it is there already.
func (s *session) call(ctx context.Context, x *transport.Exchange, body []byte) {
	received := time.Now()
	var c wire.Call
	if err := wire.Decode(body, &c); err != nil {
		s.violated("CALL: %v", err)
		return
	}
	if c.Epoch != s.epoch {
		s.violated("CALL of epoch %d in a session of epoch %d", c.Epoch, s.epoch)
		return
	}
	at, no := s.admit(c, received)
	switch {
	case no.failure.Code != "":
		x.Send(wire.TypeRefused, true, wire.Encode(wire.Refused{Failure: wire.Encode(no.failure)})) //nolint:errcheck // who asked is gone
		return
	case no.reason != "":
		x.Send(wire.TypeNotNow, true, wire.Encode(wire.NotNow{Reason: no.reason})) //nolint:errcheck // who asked is gone
		return
	case s.direct:
		s.attend(ctx, x, at)
		return
	}
	s.tell(ctx, x, at, ask{from: fromAcked, greeting: wire.TypeAccepted})
}

// attend reports a direct call, which lives no longer than its lane.
func (s *session) attend(ctx context.Context, x *transport.Exchange, at *attempt) {
	s.tell(ctx, x, at, ask{from: fromAcked, greeting: wire.TypeStarted})
	if at.isSettled() || at.isTold() {
		return
	}
	at.interrupt(gone("the caller has gone"))
	<-at.returned
	at.settle()
}

// resume answers a RESUME, if the attempt is there. There is no frame that says
// that it is not: the lane is closed.
func (s *session) resume(ctx context.Context, x *transport.Exchange, body []byte) {
	var m wire.Resume
	if err := wire.Decode(body, &m); err != nil {
		s.violated("RESUME: %v", err)
		return
	}
	if m.Epoch != s.epoch {
		s.violated("RESUME of epoch %d in a session of epoch %d", m.Epoch, s.epoch)
		return
	}
	at := s.agent.roster.adopt(s, key{job: m.Job, number: m.Attempt})
	if at == nil || m.From < 0 || !s.tell(ctx, x, at, ask{from: m.From, window: m.Window}) {
		s.log.Warn("asked to resume an attempt that is not here", "job", m.Job, "attempt", m.Attempt)
	}
}

// denial is why a call is not taken on: for good, with a failure, or for now, with
// a reason. The zero denial is none.
type denial struct {
	failure harp.Failure
	reason  string
}

// admit looks at a call again, whatever the dispatcher has found, and takes it on.
// An attempt that is here already is what it is, and never started twice.
func (s *session) admit(c wire.Call, received time.Time) (*attempt, denial) {
	req, err := harp.DecodeRequest(c.Request)
	if err != nil {
		return nil, refusal(err)
	}
	k := key{origin: s.origin, job: req.ID, number: c.Attempt}
	if known := s.agent.roster.adopt(s, k); known != nil {
		return known, denial{}
	}
	at, no := s.judge(k, c, req)
	if at == nil {
		return nil, no
	}
	return s.enter(at, c, received)
}

// enter starts an attempt if there is room for it and still time.
func (s *session) enter(at *attempt, c wire.Call, received time.Time) (*attempt, denial) {
	if c.Left != 0 && time.Since(received) >= time.Duration(c.Left) {
		return nil, denial{reason: wire.NotNowStartBefore}
	}
	known, reason := s.agent.roster.enter(s, at)
	switch {
	case known != nil:
		return known, denial{}
	case reason != "":
		return nil, denial{reason: reason}
	}
	at.start(s.work)
	return at, denial{}
}

// judge makes the attempt of a call, or says what is wrong with it.
func (s *session) judge(k key, c wire.Call, req harp.Request) (*attempt, denial) {
	p := s.agent.catalogue.find(req.Procedure)
	for _, need := range slices.Concat(c.Needs, req.Needs) {
		if !slices.Contains(features, need) {
			return nil, rejected("needs", fmt.Sprintf("needs %q, which this agent does not know", need))
		}
	}
	switch {
	case req.Host != s.agent.cfg.Name:
		return nil, rejected("wrong_host", fmt.Sprintf("this agent is %q, not %q", s.agent.cfg.Name, req.Host))
	case p == nil:
		f := harp.NewFailure("rejected_not_found", "no such procedure: "+req.Procedure)
		f.Type = "procedure"
		return nil, denial{failure: f}
	case c.Attempt < 1 || s.direct && c.Attempt != 1:
		return nil, refusal(&harp.FieldError{Field: "attempt", Message: fmt.Sprintf("%d cannot be", c.Attempt)})
	case c.Timeout < 0 || c.MaxExecTime < 0:
		return nil, refusal(&harp.FieldError{Field: "timeout", Message: "a limit must be more than zero"})
	}
	args, err := p.args.Bind(req.Args)
	if err != nil {
		return nil, refusal(err)
	}
	invoke, err := p.bind(args)
	if err != nil {
		return nil, refusal(err)
	}
	return accept(s.base, k, c, s.callInfo(p, c, req), invoke, s.agent), denial{}
}

// callInfo is what the procedure may know of the call.
func (s *session) callInfo(p *procedure, c wire.Call, req harp.Request) *CallInfo {
	peer := s.transport.Peer()
	info := &CallInfo{
		JobID: req.ID, Attempt: int(c.Attempt), Host: req.Host, Procedure: req.Procedure,
		Principal: harp.Principal{Kind: c.Principal.Kind, Name: c.Principal.Name, Auth: c.Principal.Auth},
		Direct:    s.direct, Address: peer.Addr,
		Info: req.Info, Labels: req.Labels, TraceParent: req.TraceParent,
		Timeout:     grant(time.Duration(c.Timeout), p.doc.Timeout, defaultTimeout),
		MaxExecTime: grant(time.Duration(c.MaxExecTime), p.doc.MaxExecTime, defaultMaxExecTime),
	}
	if s.direct {
		info.Principal = harp.Principal{Kind: string(peer.Identity.Role), Name: peer.Identity.Name, Auth: "certificate"}
	}
	return info
}

func rejected(typ, message string) denial {
	f := harp.NewFailure("rejected", message)
	f.Type = typ
	return denial{failure: f}
}

// refusal is for a request that is wrong.
func refusal(err error) denial {
	f := harp.NewFailure("rejected_invalid", err.Error())
	var field *harp.FieldError
	if errors.As(err, &field) {
		f.Field = field.Field
	}
	return denial{failure: fit(f)}
}
