package harp

import (
	"slices"
	"time"
)

// RetryPolicy says which outcomes of an attempt are followed by another, of the same
// job on the same host. A call that was proven not to have started is sent again in
// any case, and not counted. The zero policy is the default: a procedure declared
// idempotent is tried again when an attempt was lost, up to 3 attempts in all, any
// other never.
type RetryPolicy struct {
	// On are the outcomes: StateLost, StateTimedOut, StateFailed. By naming one the
	// caller says that the procedure may run more than once.
	On []State `json:"on,omitempty" msgpack:"on,omitempty"`

	// Attempts is how many there may be in all, the first included, from 1 to 100.
	// 1 is never again, also for a procedure declared idempotent. Default 3.
	Attempts int `json:"attempts,omitempty" msgpack:"n,omitempty"`

	// Backoff is the longest pause before the second attempt; each further one may
	// be twice as long, up to MaxBackoff. The pause itself is a random part of
	// that (full jitter, https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
	// Default 1 second.
	Backoff time.Duration `json:"backoff,omitempty" msgpack:"pause,omitempty"`

	// MaxBackoff bounds the pause. Default 1 minute.
	MaxBackoff time.Duration `json:"max_backoff,omitempty" msgpack:"maxpause,omitempty"`
}

// maxAttempts is the most that a policy can allow.
const maxAttempts = 100

// IsZero reports whether nothing was said.
func (p RetryPolicy) IsZero() bool {
	return len(p.On) == 0 && p.Attempts == 0 && p.Backoff == 0 && p.MaxBackoff == 0
}

func (p RetryPolicy) equal(other RetryPolicy) bool {
	return slices.Equal(p.On, other.On) && p.Attempts == other.Attempts && p.Backoff == other.Backoff && p.MaxBackoff == other.MaxBackoff
}

// check returns ErrInvalid, naming the field, for a policy that cannot be.
func (p RetryPolicy) check() error {
	if len(p.On) > 3 {
		return &FieldError{Field: "retry.on", Message: "names an outcome twice"}
	}
	for _, s := range p.On {
		if s != StateLost && s != StateTimedOut && s != StateFailed {
			return &FieldError{Field: "retry.on", Message: "must be one or more of lost, timed_out, failed"}
		}
	}
	switch {
	case p.Attempts < 0 || p.Attempts > maxAttempts:
		return &FieldError{Field: "retry.attempts", Message: "must be from 1 to 100"}
	case p.Backoff < 0:
		return &FieldError{Field: "retry.backoff", Message: "must not be negative"}
	case p.MaxBackoff < 0:
		return &FieldError{Field: "retry.max_backoff", Message: "must not be negative"}
	}
	return nil
}
