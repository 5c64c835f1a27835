package harp

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/harpcaller/harp/transport"
)

// The conditions a harp error can stand for. Test for them with errors.Is;
// one error may be several of them, as an expired job whose host was away is
// both [ErrExpired] and [ErrUnreachable]. They keep their identity over the
// network and in the store.
var (
	ErrNotFound      = errors.New("harp: not found")                 // no such job, host, procedure or queue
	ErrPruned        = errors.New("harp: pruned")                    // the job was there and has been deleted by retention
	ErrConflict      = errors.New("harp: conflict")                  // the id or key names another request, or the job's state forbids it
	ErrInvalid       = errors.New("harp: invalid")                   // a field of the request is wrong: see [*FieldError]
	ErrDenied        = errors.New("harp: denied")                    // not authenticated or not allowed
	ErrRefused       = errors.New("harp: refused by the dispatcher") // a cap, a window, a limit
	ErrNoSpace       = fmt.Errorf("%w: no space left", ErrRefused)   // is ErrRefused, too
	ErrRejected      = errors.New("harp: rejected by the agent")     // the procedure was not started
	ErrUnreachable   = errors.New("harp: unreachable")               // the host was away and nothing was started
	ErrExpired       = errors.New("harp: expired")                   // not started in time
	ErrCancelled     = errors.New("harp: cancelled")                 // cancelled before or while it ran
	ErrTimeout       = errors.New("harp: time limit exceeded")       // Timeout or MaxExecTime: see [*TimeoutError]
	ErrLost          = errors.New("harp: outcome unknown")           // contact was lost and what happened cannot be known
	ErrUnavailable   = errors.New("harp: dispatcher unavailable")    // the dispatcher cannot be reached or cannot answer
	ErrClosed        = errors.New("harp: closed")                    // the Caller, Dispatcher or Agent was closed
	ErrDuplicateHost = errors.New("harp: host is connected already") // another agent with this name is alive
)

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

// Failure is an error as data: how every error of harp is stored, sent and
// printed as JSON. [Failure.Err] makes the error of it, [FailureOf] makes it of
// an error; the round trip keeps identity and content.
type Failure struct {
	Code     string        `json:"code" msgpack:"code"`                             // a name of the code table
	Type     string        `json:"type,omitempty" msgpack:"type,omitempty"`         // remote: the procedure's own type; lost, rejected: the reason
	Message  string        `json:"message,omitempty" msgpack:"msg,omitempty"`       // one line for people
	Data     Value         `json:"data,omitempty" msgpack:"data,omitempty"`         // remote: the procedure's own data
	ExitCode *int64        `json:"exit_code,omitempty" msgpack:"exit,omitempty"`    // remote: of a command
	Ran      Ran           `json:"ran,omitempty" msgpack:"ran,omitempty"`           // whether the procedure started
	Fault    Fault         `json:"fault,omitempty" msgpack:"fault,omitempty"`       // whom to page
	Host     string        `json:"host,omitempty" msgpack:"host,omitempty"`         // the host it happened at
	Stage    string        `json:"stage,omitempty" msgpack:"stage,omitempty"`       // lookup, dial, tls, auth, ack, read
	Field    string        `json:"field,omitempty" msgpack:"field,omitempty"`       // invalid: the field that is wrong
	Limit    time.Duration `json:"limit,omitempty" msgpack:"limit,omitempty"`       // timeout: the limit, nanoseconds
	LimitOf  string        `json:"limit_of,omitempty" msgpack:"limit_of,omitempty"` // timeout: "timeout" or "max_exec_time"
	JobID    string        `json:"job_id,omitempty" msgpack:"job_id,omitempty"`     // the job, where the error is about a submission
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
	case e.Type != "" && e.Message != "":
		return e.Type + ": " + e.Message
	case e.Type == "" && e.Message == "":
		return "the procedure failed"
	}
	return e.Type + e.Message
}

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
	if e.Of == LimitTimeout {
		return fmt.Sprintf("no record for %v (timeout)", e.Limit)
	}
	return fmt.Sprintf("ran longer than %v (max_exec_time)", e.Limit)
}

// Is reports whether target is ErrTimeout.
func (e *TimeoutError) Is(target error) bool { return target == ErrTimeout }

// The two limits, as TimeoutError.Of names them.
const (
	LimitTimeout     = "timeout"
	LimitMaxExecTime = "max_exec_time"
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
// is the same job.
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

// causeError is a condition with its cause: it is both and prints the cause.
type causeError struct{ is, cause error }

func (e *causeError) Error() string   { return e.cause.Error() }
func (e *causeError) Unwrap() []error { return []error{e.is, e.cause} }

// failureError is a Failure as an error: what came from the store or over the
// network, with all of its content.
type failureError struct{ f Failure }

func (e *failureError) Error() string {
	text := e.f.text()
	if e.f.Host != "" {
		text = e.f.Host + ": " + text
	}
	if e.f.JobID != "" {
		text = "call may have been accepted as job " + e.f.JobID + ": " + text
	}
	return text
}

// text is the failure in one line, without where it happened.
func (f Failure) text() string {
	var text string
	switch {
	case f.Code == codeRemote:
		return f.remote().Error()
	case f.Stage != "":
		text = atStage(words(f.Code), f.Stage, f.Message)
	case f.LimitOf != "":
		return f.timeout().Error()
	case f.Code == "invalid" && f.Field != "":
		return f.field().Error()
	case f.Field != "":
		text = words(f.Code) + ": " + f.field().Error()
	case f.Code == "not_found" && f.Message != "", f.Code == codeInternal && f.Message != "":
		return f.Message
	case f.Message != "":
		text = words(f.Code) + ": " + f.Message
	default:
		text = words(f.Code)
	}
	if f.Type != "" && f.Type != f.Message {
		text += " (" + f.Type + ")"
	}
	return text
}

// words is a code as people read it: of unreachable and expired hosts the same, of
// others what the first sentinel says.
func words(code string) string {
	switch code {
	case "expired_offline":
		return words("unreachable")
	case codeInternal:
		return "failed"
	}
	if is := codeNamed(code).is; len(is) > 0 {
		return withoutPrefix(is[0].Error())
	}
	return code
}

func withoutPrefix(text string) string { return strings.TrimPrefix(text, "harp: ") }

func atStage(words, stage, detail string) string {
	if detail == "" {
		return words + " at " + stage
	}
	return words + " at " + stage + " (" + detail + ")"
}

// detail is what err says beside the sentinels in it, in one line.
func detail(err error) string {
	if isSentinel(err) {
		return ""
	}
	switch err := err.(type) { //nolint:errorlint // what is wrapped deeper says it in its own words
	case *causeError:
		return detail(err.cause)
	case *transport.HandshakeError:
		return detail(err.Err)
	case *net.OpError:
		if err.Addr != nil {
			return err.Addr.String() + ": " + err.Err.Error()
		}
	case interface{ Unwrap() []error }:
		return details(err.Unwrap())
	}
	return withoutPrefix(strings.ReplaceAll(err.Error(), "\n", "; "))
}

func details(errs []error) string {
	var parts []string
	for _, e := range errs {
		if d := detail(e); d != "" {
			parts = append(parts, d)
		}
	}
	return strings.Join(parts, "; ")
}

func isSentinel(err error) bool {
	return slices.ContainsFunc(codes, func(c code) bool { return slices.Contains(c.is, err) })
}

// Is reports whether target is one of the sentinels of the failure's code.
func (e *failureError) Is(target error) bool {
	return slices.Contains(codeNamed(e.f.Code).is, target)
}

// As gives the failure's content the shape it had where it came from.
func (e *failureError) As(target any) bool {
	switch target := target.(type) {
	case **RemoteError:
		return setAs(target, e.f.remote(), e.f.Code == codeRemote)
	case **FieldError:
		return setAs(target, e.f.field(), e.f.Field != "")
	case **TimeoutError:
		return setAs(target, e.f.timeout(), e.f.LimitOf != "")
	case **HostError:
		inner := e.f
		inner.Host, inner.Stage = "", ""
		return setAs(target, &HostError{Host: e.f.Host, Stage: e.f.Stage, Err: &failureError{inner}}, e.f.Stage != "")
	case **CallError:
		inner := e.f
		inner.JobID = ""
		return setAs(target, &CallError{JobID: e.f.JobID, Err: &failureError{inner}}, e.f.JobID != "")
	}
	return false
}

func setAs[E error](target *E, e E, has bool) bool {
	if has {
		*target = e
	}
	return has
}

func (f Failure) remote() *RemoteError {
	e := &RemoteError{Type: f.Type, Message: f.Message, Data: slices.Clone(f.Data)}
	if f.ExitCode != nil {
		n := int(*f.ExitCode)
		e.ExitCode = &n
	}
	return e
}

func (f Failure) field() *FieldError     { return &FieldError{Field: f.Field, Message: f.Message} }
func (f Failure) timeout() *TimeoutError { return &TimeoutError{Limit: f.Limit, Of: f.LimitOf} }

// Err returns the error that f describes, nil for the zero Failure. errors.Is
// finds in it what f.Code stands for, errors.As a *RemoteError, *FieldError,
// *TimeoutError, *HostError or *CallError where f holds the content of one, and
// FailureOf f itself.
func (f Failure) Err() error {
	if f.Code == "" {
		return nil
	}
	f.Data = slices.Clone(f.Data)
	return &failureError{f}
}

// NewFailure returns the Failure of a code named in the table, with that code's
// fault and ran filled in.
func NewFailure(codeName, message string) Failure {
	c := codeNamed(codeName)
	return Failure{Code: c.name, Message: message, Fault: c.fault, Ran: c.ran}
}

// FailureOf returns err as data; the zero Failure for nil. What was wrapped around
// a failure that came from elsewhere is left out: content and identity remain.
func FailureOf(err error) Failure {
	if err == nil {
		return Failure{}
	}
	f := described(err)
	var host *HostError
	if f.Stage == "" && errors.As(err, &host) {
		f.Host, f.Stage = host.Host, host.Stage
	}
	var call *CallError
	if f.JobID == "" && errors.As(err, &call) {
		f.Code, f.JobID = "unavailable", call.JobID
	}
	f.Fault, f.Ran = FaultOf(err), RanOf(err)
	return f
}

// described is the failure at the bottom of err, or made of what is known of it.
func described(err error) Failure {
	var (
		known  *failureError
		remote *RemoteError
		field  *FieldError
		limit  *TimeoutError
		host   *HostError
		call   *CallError
	)
	f := Failure{Code: codeOf(err).name}
	switch {
	case errors.As(err, &known):
		f = known.f
		f.Data = slices.Clone(f.Data)
	case errors.As(err, &remote):
		f.Code, f.Type, f.Message, f.Data = codeRemote, remote.Type, remote.Message, slices.Clone(remote.Data)
		if remote.ExitCode != nil {
			n := int64(*remote.ExitCode)
			f.ExitCode = &n
		}
	case errors.As(err, &field):
		f.Field, f.Message = field.Field, field.Message
	case errors.As(err, &limit):
		f.Limit, f.LimitOf = limit.Limit, limit.Of
	case errors.As(err, &host):
		f.Message = detail(host.Err)
	case errors.As(err, &call):
		f.Message = detail(call.Err)
	default:
		f.Message = messageOf(err, f.Code)
	}
	return f
}

// messageOf is what err says beyond the words of its code.
func messageOf(err error, code string) string {
	return strings.TrimPrefix(strings.TrimPrefix(detail(err), words(code)), ": ")
}

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
	return codeOf(err).fault
}

// RanOf says whether the procedure of the call that returned err was started.
// DidRun for nil. An error that says nothing about it, such as a context's or that
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
