package harp

import (
	"errors"
	"net"
	"slices"
	"strings"
	"time"
)

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

// newFailure returns the Failure of a code named in the table, with that code's
// fault and ran filled in.
func newFailure(codeName, message string) Failure {
	c := codeNamed(codeName)
	return Failure{Code: c.name, Message: message, Fault: c.fault, Ran: c.ran}
}

// Err returns the error that f describes, nil for the zero Failure. errors.Is
// finds in it what f.Code stands for, errors.As a *RemoteError, *FieldError,
// *TimeoutError, *HostError or *CallError where f holds the content of one, and
// FailureOf f itself.
func (f Failure) Err() error {
	if f.Code == "" {
		return nil
	}
	return &failureError{f.clone()}
}

// IsZero reports whether f describes no error.
func (f Failure) IsZero() bool { return f.Code == "" }

// clone returns a copy that shares no memory with f.
func (f Failure) clone() Failure {
	f.Data = slices.Clone(f.Data)
	if f.ExitCode != nil {
		n := *f.ExitCode
		f.ExitCode = &n
	}
	return f
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
		f = known.f.clone()
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

// failureError is a Failure as an error: what came from the store or over the
// network, with all of its content.
type failureError struct{ f Failure }

func (e *failureError) Error() string {
	text := e.f.oneLine()
	if e.f.Host != "" {
		text = e.f.Host + ": " + text
	}
	if e.f.JobID != "" {
		text = "call may have been accepted as job " + e.f.JobID + ": " + text
	}
	return text
}

// oneLine is the failure in one line, without where it happened.
func (f Failure) oneLine() string {
	var text string
	switch {
	case f.Code == codeRemote:
		return f.remote().Error()
	case f.Stage != "":
		text = atStage(words(f.Code), f.Stage, f.Message)
	case f.LimitOf != "":
		return spoken(f.timeout().Error(), f.Message)
	case f.Code == "invalid" && f.Field != "":
		return f.field().Error()
	case f.Field != "":
		text = words(f.Code) + ": " + f.field().Error()
	case f.Code == "not_found" && f.Message != "", f.Code == codeInternal && f.Message != "":
		return f.Message
	case f.Message != "":
		text = spoken(words(f.Code), f.Message)
	default:
		text = words(f.Code)
	}
	if f.Type != "" && f.Code != "conflict" && !strings.Contains(f.Message, f.Type) { // else the message says it
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

// withoutPrefix takes the name of a package of this module off an error's text.
func withoutPrefix(text string) string {
	return strings.TrimPrefix(strings.TrimPrefix(text, "harp: "), "transport: ")
}

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
	case *failureError:
		if err.f.isPlain() {
			return err.f.Message
		}
	case *net.OpError:
		switch {
		case err.Addr != nil:
			return err.Addr.String() + ": " + err.Err.Error()
		case err.Op == "dial":
			return detail(err.Err)
		}
	case interface{ Unwrap() []error }:
		return details(err.Unwrap())
	}
	return withoutPrefix(strings.ReplaceAll(err.Error(), "\n", "; "))
}

// isPlain reports whether the message is all there is beside the words of the code.
func (f Failure) isPlain() bool {
	return f.Code != codeRemote && f.Type == "" && f.Host == "" && f.Stage == "" && f.Field == "" && f.LimitOf == "" && f.JobID == ""
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

// spoken is a text and what else there is to say.
func spoken(text, more string) string {
	if more == "" {
		return text
	}
	return text + ": " + more
}

func isSentinel(err error) bool {
	return slices.ContainsFunc(codes, func(c code) bool { return slices.Contains(c.is, err) })
}

// Is reports whether target is one of the sentinels of the failure's code.
func (e *failureError) Is(target error) bool {
	if remote, ok := target.(remoteTypeError); ok {
		return e.f.Code == codeRemote && e.f.Type == string(remote)
	}
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
