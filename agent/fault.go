package agent

import (
	"errors"
	"fmt"
	"strings"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/text"
	"github.com/harpcaller/harp/internal/wire"
)

// The types of failures that are not the procedure's own words.
const (
	faultOther     = "error"            // an error without a type
	faultPanic     = "panic"            // the procedure panicked, or left by runtime.Goexit
	faultTooLarge  = "result_too_large" // its result exceeds the limit
	faultBadResult = "bad_result"       // its result has no form on the wire
)

// How much of a failure travels, in bytes.
const (
	maxFaultMessage = wire.MaxFailureText
	maxFaultType    = 256
	maxFaultData    = harp.MaxResult
	cutMark         = " [cut]"
)

// Errorf returns an error for a procedure to fail with. At the caller it is a
// *harp.RemoteError with this type, the message that fmt.Errorf makes, and the data,
// nil for none. Data that no harp.Value can hold is left out, and the message says
// so.
func Errorf(typ string, data any, format string, a ...any) error {
	cause := fmt.Errorf(format, a...)
	remote := &harp.RemoteError{Type: typ, Message: cause.Error()}
	v, err := harp.NewValue(data)
	if err != nil {
		remote.Message += fmt.Sprintf(" [data left out: %v]", err)
		return &fault{remote: remote, cause: cause}
	}
	remote.Data = v
	return &fault{remote: remote, cause: cause}
}

// fault is what Errorf returns: both what the caller gets and what it was made of.
type fault struct {
	remote *harp.RemoteError
	cause  error
}

func (f *fault) Error() string   { return f.remote.Error() }
func (f *fault) Unwrap() []error { return []error{f.remote, f.cause} }

// failureOf makes the failure of a procedure from the error it returned. Whatever
// error it is, also one of harp itself from a call the procedure made, here it is
// this procedure that failed.
func failureOf(err error) harp.Failure {
	var (
		remote *harp.RemoteError
		typed  interface {
			error
			Type() string
		}
	)
	switch {
	case errors.As(err, &remote):
		f := remoteFailure(remote.Type, strings.ReplaceAll(err.Error(), remote.Error(), remote.Message))
		f.Data = remote.Data
		if remote.ExitCode != nil {
			code := int64(*remote.ExitCode)
			f.ExitCode = &code
		}
		return truncateFailure(f)
	case errors.As(err, &typed):
		return truncateFailure(remoteFailure(typed.Type(), err.Error()))
	}
	return truncateFailure(remoteFailure(faultOther, err.Error()))
}

func remoteFailure(typ, message string) harp.Failure {
	f := failures.New("remote", message)
	if f.Type = typ; typ == "" {
		f.Type = faultOther
	}
	return f
}

// stoppedFailure is that of a procedure which its agent stopped as it stopped itself.
func stoppedFailure() harp.Failure {
	f := failures.New("lost", "the agent stopped while the procedure ran")
	f.Type, f.Ran = harp.LostAgentStopped, harp.DidRun
	return f
}

// truncateFailure makes of a failure what can travel.
func truncateFailure(f harp.Failure) harp.Failure {
	f.Type = text.Shorten(f.Type, maxFaultType, cutMark)
	f.Message = text.Shorten(f.Message, maxFaultMessage, cutMark)
	switch {
	case len(f.Data) > maxFaultData:
		f.Message += fmt.Sprintf(" [data left out: %d bytes, at most %d]", len(f.Data), maxFaultData)
		f.Data = nil
	case f.Data.Validate() != nil:
		f.Message += " [data left out: it is malformed]"
		f.Data = nil
	}
	return f
}
