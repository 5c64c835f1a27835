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

// Limits and defaults of a policy.
const (
	maxAttempts       = 100
	defaultAttempts   = 3
	defaultBackoff    = time.Second
	defaultMaxBackoff = time.Minute
)

// IsZero reports whether nothing was said.
func (p RetryPolicy) IsZero() bool {
	return len(p.On) == 0 && p.Attempts == 0 && p.Backoff == 0 && p.MaxBackoff == 0
}

// Check returns ErrInvalid, naming the field, for a policy that cannot be.
func (p RetryPolicy) Check() error {
	if len(p.On) > 3 {
		return &FieldError{Field: "retry.on", Message: "names an outcome twice"}
	}
	for _, s := range p.On {
		if s != StateLost && s != StateTimedOut && s != StateFailed {
			return &FieldError{Field: "retry.on", Message: `must be of "lost", "timed_out", "failed"`}
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

// Granted is the policy in force for a procedure, its defaults filled in; without an
// outcome in On nothing is retried.
func (p RetryPolicy) Granted(idempotent bool) RetryPolicy {
	if len(p.On) == 0 && idempotent {
		p.On = []State{StateLost}
	}
	if len(p.On) == 0 || p.Attempts == 1 {
		return RetryPolicy{}
	}
	p.On = slices.Clone(p.On)
	if p.Attempts == 0 {
		p.Attempts = defaultAttempts
	}
	if p.Backoff == 0 {
		p.Backoff = defaultBackoff
	}
	if p.MaxBackoff == 0 {
		p.MaxBackoff = max(defaultMaxBackoff, p.Backoff)
	}
	return p
}

// Allows reports whether another attempt follows the attempt of this number with
// this outcome.
func (p RetryPolicy) Allows(outcome State, attempt int) bool {
	return attempt < p.Attempts && slices.Contains(p.On, outcome)
}

// Pause is how long to wait after an attempt; jitter, from 0 to 1, says which part
// of what is allowed.
func (p RetryPolicy) Pause(attempt int, jitter float64) time.Duration {
	most := p.MaxBackoff
	if n := attempt - 1; n < 40 && p.Backoff<<n>>n == p.Backoff && p.Backoff<<n < most {
		most = p.Backoff << n
	}
	return time.Duration(float64(most) * min(max(jitter, 0), 1))
}
