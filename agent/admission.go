package agent

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/access"
	"github.com/harpcaller/harp/agent/internal/life"
	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// features are what this agent can do beyond the protocol's version.
var features = []string{harp.NeedDryRun, harp.NeedBatch, harp.NeedChain, wire.FeatureBeat}

// call answers a CALL: REFUSED, NOT_NOW, or the attempt it stands for, which is
// started unless it is there already.
func (s *session) call(x *transport.Exchange, body []byte) {
	received := time.Now()
	var c wire.Call
	if err := wire.DecodeBody(body, &c); err != nil {
		s.violated("CALL: %v", err)
		return
	}
	if c.Epoch != s.epoch {
		s.violated("CALL of epoch %d in a session of epoch %d", c.Epoch, s.epoch)
		return
	}
	for s.answer(x, c, received) == moved {
	}
}

// answer answers a call once. It has to be repeated when the attempt was left to the
// journal meanwhile.
func (s *session) answer(x *transport.Exchange, c wire.Call, received time.Time) telling {
	at, fresh, no := s.admit(c, received)
	switch {
	case no.known:
		return moved
	case at == nil:
		s.decline(x, no)
		return told
	case fresh && s.runsInline(at):
		s.runInline(x, at)
		return told
	case fresh:
		at.start()
	}
	result := s.answerCaller(x, at, c)
	if result == notTaken && at.refusal.known {
		return moved
	}
	if result == notTaken {
		s.decline(x, at.refusal)
	}
	return result
}

// answerCaller tells of the attempt of a call.
func (s *session) answerCaller(x *transport.Exchange, at *attempt, c wire.Call) telling {
	if s.direct {
		return s.answerDirect(x, at)
	}
	from := int64(life.FromAcked)
	if !at.isOf(s.store) {
		from = 0 // what another dispatcher has is not here
	}
	return s.sendAttempt(x, at, ask{from: from, window: c.Window, greeting: wire.TypeAccepted})
}

// decline answers a call that is not taken on.
func (s *session) decline(x *transport.Exchange, no refusal) {
	switch {
	case no.broken != nil: // whether it is journalled is not known: nothing can be said
		s.agent.journalBroke(no.broken)
	case no.forgotten: // it ran once, and there is nothing left of it
		_ = x.Send(wire.TypeAccepted, false, wire.Encode(wire.Accepted{}))
		_ = x.Send(wire.TypeEnd, true, wire.Encode(wire.End{Gone: true}))
	case no.failure != nil:
		_ = x.Send(wire.TypeRefused, true, wire.Encode(wire.Refused{Failure: no.failure.Err()}))
	default:
		_ = x.Send(wire.TypeNotNow, true, wire.Encode(wire.NotNow{Reason: no.reason}))
	}
}

// resume answers a RESUME, if the attempt is there. There is no frame that says
// that it is not: the exchange is reset. A cancel that comes with it is heard first.
func (s *session) resume(x *transport.Exchange, body []byte) {
	var m wire.Resume
	if err := wire.Decode(body, &m); err != nil {
		s.violated("RESUME: %v", err)
		return
	}
	if m.Epoch != s.epoch {
		s.violated("RESUME of epoch %d in a session of epoch %d", m.Epoch, s.epoch)
		return
	}
	result := moved
	if m.From < 0 || m.From > maxRecords {
		result = notHere
	}
	for result == moved {
		at := s.agent.lookup(key{job: m.Job, number: m.Attempt})
		if at == nil {
			break
		}
		at.begun.wait()
		if m.Cancel != nil {
			at.cancelled(*m.Cancel)
		}
		result = s.sendAttempt(x, at, ask{from: m.From, window: m.Window})
	}
	if result != told {
		s.warn("asked to resume an attempt that is not here", "job", m.Job, "attempt", m.Attempt, "from", m.From)
	}
}

// maxRecords is more records than an attempt will ever have, and maxNumber more attempts than a job.
const (
	maxRecords = 1 << 48
	maxNumber  = math.MaxInt32
)

// refusal is why a call is not taken on. The zero refusal is none.
type refusal struct {
	failure   *harp.Failure // for good; nil: it is not
	reason    string        // for now
	known     bool          // it came here or was forgotten just now: to be looked up again
	forgotten bool          // it is known, and nothing but that
	broken    error         // what happened is not known
}

// is reports whether there is one.
func (d refusal) is() bool {
	return d.failure != nil || d.reason != "" || d.known || d.forgotten || d.broken != nil
}

// admit looks at a call again, whatever the dispatcher has found, and takes it on. fresh
// says that the caller is to start it: one that is here already is what it is, and never
// started twice.
func (s *session) admit(c wire.Call, received time.Time) (at *attempt, fresh bool, no refusal) {
	req, err := harp.DecodeRequest(c.Request)
	if err != nil {
		return nil, false, refuseInvalid(err)
	}
	if no := s.becomeMember(c, &req); no.is() {
		return nil, false, no
	}
	k := key{origin: s.origin, job: req.ID, number: c.Attempt}
	if known := s.agent.lookup(k); known != nil {
		return known, false, refusal{}
	}
	if s.agent.hasForgotten(k) {
		s.warn("asked to start an attempt that was here before", "job", k.job, "attempt", k.number)
		return nil, false, refusal{forgotten: true}
	}
	at, no = s.judge(k, c, req)
	if at == nil {
		return nil, false, no
	}
	return s.enter(at, c, received)
}

// becomeMember makes the request of a batch that of the member of which the call is.
func (s *session) becomeMember(c wire.Call, req *harp.Request) refusal {
	switch {
	case !req.IsBatch():
		return refusal{}
	case s.direct:
		return refuseInvalid(&harp.FieldError{Field: "target", Message: "a direct call is of one host"})
	case c.Host != s.agent.cfg.Name:
		return s.wrongHost(c.Host)
	}
	step := max(c.Step, 1)
	if step > int64(req.Steps()) {
		return refuseInvalid(&harp.FieldError{Field: "step", Message: fmt.Sprintf("must be from 1 to %d", req.Steps())})
	}
	if c.Job != harp.MemberID(req.ID, c.Host, int(step)) {
		return refuseInvalid(&harp.FieldError{Field: "job", Message: "is not that of the batch on this host"})
	}
	at, err := req.AtStep(int(step))
	if err != nil {
		return refuseInvalid(err)
	}
	*req = at
	req.ID, req.Host = c.Job, c.Host
	return refusal{}
}

func (s *session) wrongHost(name string) refusal {
	return rejected("wrong_host", fmt.Sprintf("this agent is %q, not %q", s.agent.cfg.Name, name))
}

// enter journals that an attempt starts if there is room for it and still time.
func (s *session) enter(at *attempt, c wire.Call, received time.Time) (_ *attempt, fresh bool, no refusal) {
	late := latest{received: received, left: time.Duration(c.Left), greeted: s.greeted, by: time.Duration(c.By)}
	if late.passed() {
		return nil, false, refusal{reason: wire.NotNowStartBefore}
	}
	known, reason := s.agent.attempts.enter(s, at)
	switch {
	case known != nil:
		return known, false, refusal{}
	case reason != "":
		return nil, false, refusal{reason: reason}
	}
	if no := s.begin(at, late); no.is() {
		at.refuse(no)
		return nil, false, no
	}
	return at, true, refusal{}
}

// latest is when an attempt must have started: so long after its call came, and so long after the session was welcomed; 0:
// whenever. That was not before it was greeted, so that a slow line makes it no later.
type latest struct {
	received time.Time
	left     time.Duration
	greeted  time.Time
	by       time.Duration
}

func (l latest) passed() bool {
	return l.left != 0 && time.Since(l.received) >= l.left || l.by != 0 && time.Since(l.greeted) >= l.by
}

// begin journals that an attempt starts and, where that can fail, starts it.
func (s *session) begin(at *attempt, late latest) refusal {
	if at.task.begin == nil {
		no := s.commit(at, late)
		if !no.is() {
			s.agent.putOff.noteBegun(at.info.Procedure, at.key.journal())
		}
		return no
	}
	return at.task.begin(at, func() refusal { return s.commit(at, late) })
}

// commit journals that an attempt starts, if it is not too late then.
func (s *session) commit(at *attempt, late latest) refusal {
	if no := s.journalStart(at); no.is() {
		return no
	}
	if late.passed() {
		return at.retract(wire.NotNowStartBefore)
	}
	return refusal{}
}

// journalStart journals that an attempt starts, in one write.
func (s *session) journalStart(at *attempt) refusal {
	if at.spool.handle == nil {
		return refusal{}
	}
	j := s.agent.journal.current()
	if j == nil {
		return refusal{reason: wire.NotNowDraining}
	}
	a, now := journal.Accept{Fence: at.fence, Store: at.store, Info: at.journalInfo(), Elsewhere: at.task.keepsElsewhere()}, time.Now()
	err := j.AcceptStart(at.spool.key, a, now)
	for s.agent.makeRoom(err) {
		err = j.AcceptStart(at.spool.key, a, now)
	}
	switch {
	case err == nil:
		at.journalled(j)
		return refusal{}
	case errors.Is(err, journal.ErrBroken):
		return refusal{broken: err}
	case errors.Is(err, journal.ErrClosed):
		return refusal{reason: wire.NotNowDraining}
	case errors.Is(err, journal.ErrKnown):
		return refusal{known: true}
	}
	var full *journal.FullError
	waits := errors.As(err, &full) && s.agent.attempts.runs() // what runs makes room as it ends
	if !waits && !s.agent.putsOff(at.info.Procedure, at.spool.key, err) {
		return rejected("no_space", err.Error())
	}
	s.warn("a call cannot be journalled", "job", at.key.job, "error", err.Error())
	s.agent.attempts.owe(s)
	return refusal{reason: wire.NotNowNoSpace}
}

// judge makes the attempt of a call, or says what is wrong with it.
func (s *session) judge(k key, c wire.Call, req harp.Request) (*attempt, refusal) {
	p := s.agent.catalogue.find(req.Procedure)
	for _, need := range slices.Concat(c.Needs, req.Needs) {
		if !slices.Contains(features, need) {
			return nil, rejected("needs", fmt.Sprintf("needs %q, which this agent does not know", need))
		}
	}
	switch {
	case req.Host != s.agent.cfg.Name:
		return nil, s.wrongHost(req.Host)
	case p == nil:
		f := failures.New("rejected_not_found", "no such procedure: "+req.Procedure)
		f.Type = "procedure"
		return nil, refusal{failure: &f}
	case c.Attempt < 1 || c.Attempt > maxNumber || s.direct && c.Attempt != 1:
		return nil, refuseInvalid(&harp.FieldError{Field: "attempt", Message: fmt.Sprintf("must not be %d", c.Attempt)})
	case req.DryRun && !p.can(harp.TraitDryRun):
		return nil, rejected("dry_run", "the procedure has no dry run")
	case c.SilenceTimeout < 0 || c.MaxExecTime < 0:
		return nil, refuseInvalid(&harp.FieldError{Field: "silence_timeout", Message: "must be more than zero"})
	}
	args, err := p.args.Bind(req.Args)
	if err != nil {
		return nil, refuseInvalid(err)
	}
	info := s.callInfo(p, c, req)
	work, err := p.bind(args, info)
	var untrusted *access.UntrustedError
	switch {
	case errors.As(err, &untrusted):
		return nil, rejected("exec", err.Error())
	case proc.IsShort(err) && s.agent.putsOff(req.Procedure, k.journal(), err):
		s.warn("a call cannot be looked at", "job", k.job, "error", err.Error())
		return nil, refusal{reason: wire.NotNowNoSpace}
	case proc.IsShort(err):
		return nil, rejected("exec", err.Error())
	case err != nil:
		return nil, refuseInvalid(err)
	}
	return accept(s, k, c, info, p, work), refusal{}
}

// callInfo is what the procedure may know of the call.
func (s *session) callInfo(p *procedure, c wire.Call, req harp.Request) *CallInfo {
	peer := s.transport.Peer()
	info := &CallInfo{
		JobID: req.ID, Attempt: int(c.Attempt), Host: req.Host, Procedure: req.Procedure,
		Principal: harp.Principal{Kind: c.Principal.Kind, Name: c.Principal.Name, Auth: c.Principal.Auth},
		Direct:    s.direct, Address: peer.Addr,
		Info: req.Info, Labels: req.Labels, TraceParent: req.TraceParent, DryRun: req.DryRun,
		SilenceTimeout: grant(time.Duration(c.SilenceTimeout), p.doc.SilenceTimeout, p.silenceDefault()),
		MaxExecTime:    grant(time.Duration(c.MaxExecTime), p.doc.MaxExecTime, defaultMaxExecTime),
		Schedule:       c.Schedule, FireTime: c.Fire,
	}
	if s.direct {
		info.Principal = harp.Principal{Kind: string(peer.Identity.Role), Name: peer.Identity.Name, Auth: "certificate"}
	}
	return info
}

func rejected(typ, message string) refusal {
	f := failures.New("rejected", message)
	f.Type = typ
	f = truncateFailure(f)
	return refusal{failure: &f}
}

// refuseInvalid is for a request that is wrong.
func refuseInvalid(err error) refusal {
	f := failures.New("rejected_invalid", err.Error())
	var field *harp.FieldError
	if errors.As(err, &field) {
		f.Field, f.Message = field.Field, field.Message
	}
	f = truncateFailure(f)
	return refusal{failure: &f}
}
