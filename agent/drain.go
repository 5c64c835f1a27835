package agent

import "context"

// Drain lets the agent take no more calls, also those of sessions to come: they are
// answered that it is draining, and wait at their dispatcher. It returns nil when the
// agent is idle: nothing runs, commands included, also those that the agent before, or this
// one, has let go, which Connect and Serve look for; and how each attempt ended was taken by
// its dispatcher or is in the journal with all its records, unless that is in memory. Then the contexts of Connect
// and Serve may end. The error is that of ctx; the agent goes on to take no calls.
func (a *Agent) Drain(ctx context.Context) error {
	select {
	case <-a.attempts.drain():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
