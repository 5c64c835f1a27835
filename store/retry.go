package store

import (
	"slices"
	"time"

	"github.com/harpcaller/harp"
)

// What a harp.RetryPolicy has where it does not say so.
const (
	defaultAttempts   = 3
	defaultBackoff    = time.Second
	defaultMaxBackoff = time.Minute
)

// GrantRetry returns the policy in force for a procedure, its defaults filled in; without an
// outcome in On nothing is retried.
func GrantRetry(p harp.RetryPolicy, idempotent bool) harp.RetryPolicy {
	if len(p.On) == 0 && idempotent {
		p.On = []harp.State{harp.StateLost}
	}
	if len(p.On) == 0 || p.Attempts == 1 {
		return harp.RetryPolicy{}
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

// allowsRetry reports whether another attempt follows the attempt of this number with
// this outcome.
func allowsRetry(p harp.RetryPolicy, outcome harp.State, attempt int) bool {
	return attempt < p.Attempts && slices.Contains(p.On, outcome)
}

// retryPause is how long to wait after an attempt; jitter, from 0 to 1, says which part
// of what is allowed.
func retryPause(p harp.RetryPolicy, attempt int, jitter float64) time.Duration {
	most := p.MaxBackoff
	if n := attempt - 1; n < 40 && p.Backoff<<n>>n == p.Backoff && p.Backoff<<n < most {
		most = p.Backoff << n
	}
	return time.Duration(float64(most) * min(max(jitter, 0), 1))
}
