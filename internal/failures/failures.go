// Package failures makes harp.Failures: what those who answer requests say, and those who
// make calls only read.
package failures

import (
	"fmt"

	"github.com/harpcaller/harp"
)

// New returns the Failure of a code of harp's table, with that code's fault and ran filled in.
func New(code, message string) harp.Failure {
	return harp.FailureOf(harp.Failure{Code: code, Message: message}.Err())
}

// ConflictOfKey returns a harp.ErrConflict about an idempotency key, which names the job or batch that has it.
func ConflictOfKey(what, id string) error {
	f := New("conflict", "the idempotency key belongs to another request, that of "+what+" "+id)
	f.Type = harp.ConflictOfKey
	return f.Err()
}

// NotFound returns a harp.ErrNotFound that names what is not there.
func NotFound(what, name string) error {
	f := New("not_found", fmt.Sprintf("no such %s: %s", what, name))
	f.Type = what
	return f.Err()
}
