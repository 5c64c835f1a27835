package harp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The conditions a harp error can stand for. Test for them with errors.Is;
// one error may be several of them, as an expired job whose host was away is
// both [ErrExpired] and [ErrUnreachable]. They keep their identity over the
// network and in the store.
var (
	ErrNotFound      = errors.New("harp: not found")                 // no such job, host, procedure or queue
	ErrPruned        = errors.New("harp: pruned")                    // the job was there and has been deleted by retention
	ErrConflict      = errors.New("harp: conflict")                  // the id or key names another request; of a type, as "host": the state of what that names forbids it
	ErrInvalid       = errors.New("harp: invalid")                   // a field of the request is wrong: see [*FieldError]
	ErrDenied        = errors.New("harp: denied")                    // not authenticated or not allowed
	ErrRefused       = errors.New("harp: refused by the dispatcher") // a cap, a window, a limit
	ErrNoSpace       = fmt.Errorf("%w: no space left", ErrRefused)   // is ErrRefused, too
	ErrRejected      = errors.New("harp: rejected by the agent")     // the procedure was not started
	ErrUnreachable   = errors.New("harp: unreachable")               // the host was away and nothing was started
	ErrExpired       = errors.New("harp: expired")                   // not started in time
	ErrCancelled     = errors.New("harp: cancelled")                 // cancelled before or while it ran
	ErrTimeout       = errors.New("harp: time limit exceeded")       // SilenceTimeout or MaxExecTime: see [*TimeoutError]
	ErrLost          = errors.New("harp: outcome unknown")           // contact was lost and what happened cannot be known
	ErrUnavailable   = errors.New("harp: dispatcher unavailable")    // the dispatcher cannot be reached or cannot answer
	ErrClosed        = errors.New("harp: closed")                    // the Caller, Dispatcher or Agent was closed
	ErrDuplicateHost = errors.New("harp: host is already connected") // another agent with this name is alive
)

// ConflictOfKey is the Type that the [Failure] of an ErrConflict has which is about an idempotency key, and not about the id of
// its request: nothing is stored under that.
const ConflictOfKey = "idempotency_key"

// A Fault says who has to act on an error: whom to page.
type Fault string

// The faults.
const (
	FaultNone       Fault = ""           // no error
	FaultCaller     Fault = "caller"     // the request is wrong
	FaultPolicy     Fault = "policy"     // a rule, cap, cancel or limit said no
	FaultDispatcher Fault = "dispatcher" // the dispatcher or its store
	FaultNetwork    Fault = "network"    // what lies between
	FaultAgent      Fault = "agent"      // the agent or its host
	FaultProcedure  Fault = "procedure"  // the procedure itself failed
	FaultUnknown    Fault = "unknown"    // nobody said: an error that is not of harp
)

// Ran says whether a procedure was started.
type Ran string

// The three answers. Whoever wants to repeat a call that is not safe to run
// twice may do so only on [DidNotRun].
const (
	DidNotRun  Ran = "no"
	MayHaveRun Ran = "maybe"
	DidRun     Ran = "yes"
)

// A code is the name of a condition on the wire, in the store and in JSON. It is
// written once, here, with what it means: the sentinels it stands for, whose
// fault it is and whether the procedure ran unless the failure itself says more.
type code struct {
	name  string
	is    []error
	fault Fault
	ran   Ran
}

// codes is the one table of error identities. Names are never reused or changed.
var codes = []code{
	{"not_found", []error{ErrNotFound}, FaultCaller, DidNotRun},
	{"pruned", []error{ErrPruned}, FaultCaller, MayHaveRun},
	{"conflict", []error{ErrConflict}, FaultCaller, DidNotRun},
	{"invalid", []error{ErrInvalid}, FaultCaller, DidNotRun},
	{"denied", []error{ErrDenied}, FaultPolicy, DidNotRun},
	{"refused", []error{ErrRefused}, FaultPolicy, DidNotRun},
	{"no_space", []error{ErrNoSpace, ErrRefused}, FaultDispatcher, DidNotRun},
	{"rejected", []error{ErrRejected}, FaultAgent, DidNotRun},
	{"rejected_not_found", []error{ErrRejected, ErrNotFound}, FaultCaller, DidNotRun},
	{"rejected_invalid", []error{ErrRejected, ErrInvalid}, FaultCaller, DidNotRun},
	{"rejected_denied", []error{ErrRejected, ErrDenied}, FaultPolicy, DidNotRun},
	{"unreachable", []error{ErrUnreachable}, FaultNetwork, DidNotRun},
	{"expired", []error{ErrExpired}, FaultPolicy, DidNotRun},
	{"expired_offline", []error{ErrExpired, ErrUnreachable}, FaultNetwork, DidNotRun},
	{"cancelled", []error{ErrCancelled}, FaultPolicy, DidRun},
	{"timeout", []error{ErrTimeout}, FaultPolicy, DidRun},
	{"lost", []error{ErrLost}, FaultAgent, MayHaveRun},
	{"unavailable", []error{ErrUnavailable}, FaultDispatcher, DidNotRun},
	{"closed", []error{ErrClosed}, FaultCaller, DidNotRun},
	{"duplicate_host", []error{ErrDuplicateHost}, FaultAgent, DidNotRun},
	{codeRemote, nil, FaultProcedure, DidRun},
	{codeInternal, nil, FaultDispatcher, MayHaveRun},
}

const (
	codeRemote   = "remote"   // the procedure failed: *RemoteError
	codeInternal = "internal" // an error without identity; its text is all there is
)

// codeNamed finds a code by name; an unknown name, from a newer peer, is shown as
// it is and has no sentinel.
func codeNamed(name string) code {
	for _, c := range codes {
		if c.name == name {
			return c
		}
	}
	return code{name: name, fault: FaultDispatcher, ran: MayHaveRun}
}

// codeOf finds the code whose sentinels are exactly those that err is; of several
// the one with most sentinels.
func codeOf(err error) code {
	var best code
	for _, c := range codes {
		if len(c.is) > len(best.is) && isAll(err, c.is) {
			best = c
		}
	}
	if best.name == "" {
		return codeNamed(codeInternal)
	}
	return best
}

func isAll(err error, sentinels []error) bool {
	for _, s := range sentinels {
		if !errors.Is(err, s) {
			return false
		}
	}
	return true
}

// RemoteError is the failure of the procedure itself: it ran and said no.
type RemoteError struct {
	Type     string // the error's own name: given to agent.Errorf, "panic", or the Go type
	Message  string
	Data     Value // what the procedure attached; empty if nothing
	ExitCode *int  // of a command; nil otherwise
}

func (e *RemoteError) Error() string {
	switch {
	case strings.HasPrefix(e.Message, e.Type+" "): // exit code 1, of the type exit
		return e.Message
	case e.Type != "" && e.Message != "":
		return e.Type + ": " + e.Message
	case e.Type == "" && e.Message == "":
		return "the procedure failed"
	}
	return e.Type + e.Message
}

// Is reports whether target is the [RemoteType] of e.
func (e *RemoteError) Is(target error) bool { return target == error(remoteTypeError(e.Type)) }

// RemoteType returns an error that failures of procedures are whose [RemoteError.Type] is
// this: errors.Is(err, harp.RemoteType("unit_failed")).
func RemoteType(name string) error { return remoteTypeError(name) }

type remoteTypeError string

func (t remoteTypeError) Error() string { return "harp: the procedure failed: " + string(t) }

// FieldError names the field of a request that is wrong and what was expected. It
// is [ErrInvalid].
type FieldError struct {
	Field   string // as the user knows it: "args.count", "queue", "max_exec_time"
	Message string // what was expected
}

func (e *FieldError) Error() string { return "invalid " + e.Field + ": " + e.Message }

// Is reports whether target is ErrInvalid.
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }

// TimeoutError tells which limit ended a job. It is [ErrTimeout].
type TimeoutError struct {
	Limit time.Duration // the limit that was exceeded
	Of    string        // "timeout" (silence) or "max_exec_time" (in all)
}

func (e *TimeoutError) Error() string {
	if e.Of == LimitSilenceTimeout {
		return fmt.Sprintf("no record for %v (silence_timeout)", e.Limit)
	}
	return fmt.Sprintf("ran longer than %v (max_exec_time)", e.Limit)
}

// Is reports whether target is ErrTimeout.
func (e *TimeoutError) Is(target error) bool { return target == ErrTimeout }

// The two limits, as TimeoutError.Of names them.
const (
	LimitSilenceTimeout = "timeout"
	LimitMaxExecTime    = "max_exec_time"
)

// HostError tells at which stage a host or dispatcher could not be reached.
type HostError struct {
	Host  string // name or address
	Stage string // lookup, dial, tls, auth, ack, read
	Err   error  // the cause, ErrUnreachable or ErrUnavailable among it
}

func (e *HostError) Error() string {
	return e.Host + ": " + atStage(words(codeOf(e).name), e.Stage, detail(e.Err))
}

// Unwrap returns the cause.
func (e *HostError) Unwrap() error { return e.Err }

// CallError is what Host.Call returns when the submission may have reached the
// dispatcher and no answer came. It is [ErrUnavailable]; [RanOf] answers
// [MayHaveRun]. Calling again with the same id, harp.JobID(e.JobID), is safe: it
// is the same job. It is not if the dispatcher has been restored from a backup meanwhile, or another one has its
// address: what it has not heard of it starts.
type CallError struct {
	JobID string
	Err   error
}

func (e *CallError) Error() string {
	return "call may have been accepted as job " + e.JobID + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *CallError) Unwrap() error { return e.Err }

// Is reports whether target is ErrUnavailable.
func (e *CallError) Is(target error) bool { return target == ErrUnavailable }

// FaultOf says whose fault err is: whom to page. FaultNone for nil.
func FaultOf(err error) Fault {
	if err == nil {
		return FaultNone
	}
	var known *failureError
	if errors.As(err, &known) {
		if known.f.Fault != "" {
			return known.f.Fault
		}
		return codeNamed(known.f.Code).fault
	}
	var remote *RemoteError
	switch {
	case errors.As(err, &remote):
		return FaultProcedure
	case errors.Is(err, ErrUnavailable):
		return FaultNetwork
	}
	c := codeOf(err)
	switch {
	case c.name != codeInternal:
		return c.fault
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return FaultCaller
	}
	return FaultUnknown
}

// RanOf says whether the procedure of the call that returned err was started.
// DidRun for nil. Of a call that is made again under its id it speaks of this
// submission: one before may have been accepted. An error that says nothing about it, such as a context's or that
// of asking after a job in vain, is MayHaveRun.
func RanOf(err error) Ran {
	if err == nil {
		return DidRun
	}
	var (
		job    *jobError
		call   *CallError
		known  *failureError
		remote *RemoteError
	)
	switch {
	case errors.As(err, &job) && job.ran != "":
		return job.ran
	case errors.As(err, &call):
		return MayHaveRun
	case errors.As(err, &known):
		if known.f.Ran != "" {
			return known.f.Ran
		}
		return codeNamed(known.f.Code).ran
	case errors.As(err, &remote):
		return DidRun
	}
	return codeOf(err).ran
}
