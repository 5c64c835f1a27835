package dispatcher

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

// PrincipalLimits bound what one principal may have, so that it leaves room for others; a zero
// field means its default. They do not hold for callers in the dispatcher's own process.
type PrincipalLimits struct {
	Sessions     int   // at a time. Default 4,096
	Waiting      int   // jobs that wait to start. Default 100,000
	Queues       int   // with jobs of its that have not ended, or changed by it. Default 20,000
	BytesPerHour int64 // that its calls make the dispatcher store; a sixteenth as much is for pauses, cancels, deletes and other changes. Default 10 GiB
}

const (
	// callBytes is about what is stored of a call beside its request, records and result.
	callBytes = 1 << 10

	// operationBytes is about what is stored of an operation, as a pause, beside what was asked for: what came of it, for a month, and
	// an event.
	operationBytes = 512

	// fairShare is the part of all sessions that one caller may have while more than half of them are
	// in use: so many callers would have to work together to lock others out.
	fairShare = 16

	// manyPrincipals are worth looking which of them have nothing any more, and then twice as many as were left.
	manyPrincipals = 1024
)

// withDefaults fills in what is zero. Errors: *harp.FieldError.
func (l PrincipalLimits) withDefaults() (PrincipalLimits, error) {
	if l.Sessions < 0 || l.Waiting < 0 || l.Queues < 0 || l.BytesPerHour < 0 {
		return l, &harp.FieldError{Field: "limits.per_principal", Message: "must not be negative"}
	}
	for _, d := range []struct {
		field *int
		value int
	}{{&l.Sessions, 4096}, {&l.Waiting, 100_000}, {&l.Queues, 20_000}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if l.BytesPerHour == 0 {
		l.BytesPerHour = 10 << 30
	}
	return l, nil
}

// principals are those that have sessions, or had something stored in the last hour.
type principals struct {
	most PrincipalLimits

	mu              sync.Mutex
	known           map[harp.Principal]*principal
	forgetAt        int // with so many known those are forgotten that have nothing any more
	callers, agents sessionCount
}

// sessionCount counts the sessions of all principals of a kind.
type sessionCount struct {
	limit      string // its name in the configuration
	used, most int
	refusing   int // that are being told why they are refused
}

// principal is what one has, beside its jobs and queues, which the store counts.
type principal struct {
	sessions int
	calls    hourly // bytes of its calls, with what they return, and of what it puts
	changes  hourly // bytes of its operations
}

// hourly are bytes, or other things, that were stored in the last hour, about: as many as may be are forgotten in an hour.
type hourly struct {
	stored float64   // that count at the time `at`
	at     time.Time // the zero time if nothing was
}

// count is how many bytes count now.
func (h *hourly) count(now time.Time, most int64) float64 {
	if h.at.IsZero() {
		return 0
	}
	return max(0, h.stored-now.Sub(h.at).Hours()*float64(most))
}

// add counts bytes, which may be negative.
func (h *hourly) add(now time.Time, n int, most int64) {
	h.stored, h.at = max(0, h.count(now, most)+float64(n)), now
}

// admit counts bytes if there is room for them, or nothing counts yet, and returns how long it takes until there is some.
func (h *hourly) admit(now time.Time, n int, most int64) (wait time.Duration) {
	had := h.count(now, most)
	if over := had + float64(n) - float64(most); over > 0 && had > 0 {
		return time.Duration(math.Ceil(min(over/float64(most), 1)*3600)) * time.Second
	}
	h.add(now, n, most)
	return 0
}

// isIdle reports whether nothing has been counted for an hour.
func (p *principal) isIdle(now time.Time) bool {
	return p.sessions == 0 && now.Sub(p.calls.at) >= time.Hour && now.Sub(p.changes.at) >= time.Hour
}

func newPrincipals(l Limits) *principals {
	return &principals{
		most: l.PerPrincipal, known: map[harp.Principal]*principal{}, forgetAt: manyPrincipals,
		callers: sessionCount{limit: "limits.caller_sessions", most: l.CallerSessions},
		agents:  sessionCount{limit: "limits.agent_sessions", most: l.AgentSessions},
	}
}

// isUnlimited reports whether a principal is of this process, which could do what it likes anyway.
func isUnlimited(who harp.Principal) bool { return who.Kind == processKind }

// processKind is the kind of principal that a caller in the dispatcher's process is.
const processKind = "process"

// quota is how much a principal may have in the store.
func (ps *principals) quota(who harp.Principal) store.Quota {
	if isUnlimited(who) {
		return store.Quota{}
	}
	return store.Quota{Waiting: ps.most.Waiting, Queues: ps.most.Queues}
}

// knownLocked returns what a principal has, made if that is nothing yet.
func (ps *principals) knownLocked(who harp.Principal) *principal {
	p := ps.known[who]
	if p == nil {
		if len(ps.known) >= ps.forgetAt {
			ps.forgetIdleLocked()
			ps.forgetAt = max(manyPrincipals, 2*len(ps.known))
		}
		p = &principal{}
		ps.known[who] = p
	}
	return p
}

func (ps *principals) forgetIdleLocked() {
	now := time.Now()
	for who, p := range ps.known {
		if p.isIdle(now) {
			delete(ps.known, who)
		}
	}
}

// beginSession counts a session. One that is refused may be counted, too: then its peer is
// to be told. What was counted is to be ended. Errors: harp.ErrRefused.
func (ps *principals) beginSession(who harp.Principal) (counted bool, err error) {
	most, all := ps.most.Sessions, &ps.callers
	if who.Kind == agentKind {
		most, all = agentSessions, &ps.agents
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.knownLocked(who)
	if err := all.checkShare(who, p.sessions, most); err != nil {
		if all.refusing >= politeRefusals {
			return false, err
		}
		all.refusing++
		return true, err
	}
	p.sessions++
	all.used++
	return true, nil
}

// checkShare says why a principal, which has so many sessions of its own most, gets no more; nil if it does.
func (c *sessionCount) checkShare(who harp.Principal, own, most int) error {
	switch {
	case own >= most:
		return refusedBy("sessions", fmt.Sprintf("%s %s has %d sessions, at most %d", who.Kind, who.Name, own, most))
	case c.used >= c.most:
		return c.exceededError(fmt.Sprintf("there are %d", c.used))
	case c.used >= c.most/2 && own >= max(c.most/fairShare, 1) && who.Kind != agentKind:
		return c.exceededError(fmt.Sprintf("there are %d, of which %d are of %s %s", c.used, own, who.Kind, who.Name))
	}
	return nil
}

// exceededError says that there are too many sessions.
func (c *sessionCount) exceededError(are string) error {
	return failures.New("refused", fmt.Sprintf("%s: %s, at most %d in all", c.limit, are, c.most)).Err()
}

// agentKind is the kind of principal that an agent is.
const agentKind = "agent"

// endSession ends a session that beginSession has counted, with the error that it returned.
func (ps *principals) endSession(who harp.Principal, refusal error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	all := &ps.callers
	if who.Kind == agentKind {
		all = &ps.agents
	}
	if refusal != nil {
		all.refusing--
		return
	}
	all.used--
	p := ps.known[who]
	if p.sessions--; p.sessions == 0 && p.calls.at.IsZero() && p.changes.at.IsZero() {
		delete(ps.known, who)
	}
}

// usedBy is how many sessions a principal has, and how many bytes of its calls and of its operations count now.
func (ps *principals) usedBy(who harp.Principal) (sessions, stored, changed int64) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.known[who]
	if p == nil {
		return 0, 0, 0
	}
	now := time.Now()
	return int64(p.sessions), int64(p.calls.count(now, ps.most.BytesPerHour)), int64(p.changes.count(now, ps.most.operationBytes()))
}

// operationBytes is how many bytes operations of one principal may take in an hour.
func (l PrincipalLimits) operationBytes() int64 { return max(l.BytesPerHour/operationsPart, 1) }

// admitCalls counts the bytes of so many calls of one request that are about to be stored, or refuses
// them. Errors: harp.ErrRefused.
func (ps *principals) admitCalls(who harp.Principal, sub harp.Submission, calls int) (counted int, err error) {
	if isUnlimited(who) {
		return 0, nil
	}
	n := calls*callBytes + len(sub.Request) + len(sub.Signature) + len(sub.KeyID)
	if err := ps.admitBytes(who, n); err != nil {
		return 0, err
	}
	return n, nil
}

// admitBytes counts bytes that are about to be stored for a principal, or refuses them. Errors: harp.ErrRefused.
func (ps *principals) admitBytes(who harp.Principal, n int) error {
	if isUnlimited(who) {
		return nil
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if wait := ps.knownLocked(who).calls.admit(time.Now(), n, ps.most.BytesPerHour); wait > 0 {
		return refusedBy("bytes_per_hour", fmt.Sprintf("%s %s has used up the %d bytes that it may have stored in an hour; there is room in %v",
			who.Kind, who.Name, ps.most.BytesPerHour, wait))
	}
	return nil
}

// admitOperation counts bytes that are about to be stored of an operation of a principal, or refuses them. Errors: harp.ErrRefused.
func (ps *principals) admitOperation(who harp.Principal, n int) error {
	if isUnlimited(who) || n == 0 {
		return nil
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	most := ps.most.operationBytes()
	if wait := ps.knownLocked(who).changes.admit(time.Now(), n, most); wait > 0 {
		return refusedBy("bytes_per_hour", fmt.Sprintf("%s %s has used up the %d bytes, a %dth of these, that what it pauses, ends, deletes and changes may take in an hour; there is room in %v",
			who.Kind, who.Name, most, operationsPart, wait))
	}
	return nil
}

// checkHalf refuses that a principal has more than half of what there may be of something that is kept until somebody deletes it, so that
// it leaves room for others. It would have so much, and that is more than before by so much. Errors: harp.ErrRefused.
func checkHalf(who harp.Principal, what string, has, more, most documentRoom) error {
	switch {
	case isUnlimited(who):
	case more.count > 0 && has.count > most.count/2:
		return failures.New("refused", fmt.Sprintf("%s %s would have put %d %s, at most half of the %d that there may be", who.Kind, who.Name, has.count, what, most.count)).Err()
	case more.bytes > 0 && has.bytes > most.bytes/2:
		return failures.New("refused", fmt.Sprintf("%s put by %s %s may have at most half of the %d bytes that there may be", what, who.Kind, who.Name, most.bytes)).Err()
	}
	return nil
}

// countBytes counts bytes that were stored for a principal: for them its next calls are refused. Of
// a call that was not stored after all they are negative.
func (ps *principals) countBytes(who harp.Principal, n int) {
	if isUnlimited(who) || n == 0 {
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.knownLocked(who).calls.add(time.Now(), n, ps.most.BytesPerHour)
}

// refusedBy names the limit that refuses something, as the configuration does.
func refusedBy(limit, why string) error {
	return failures.New("refused", store.QuotaName+limit+": "+why).Err()
}
