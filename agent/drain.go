package agent

import (
	"context"

	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// Drain lets the agent take no more calls, also those of sessions to come: they are
// answered that it is draining, and wait at their dispatcher. It returns nil when the
// agent is idle: nothing runs, commands included, also those that the agent before, or this
// one, has let go, which Connect and Serve look for; and how each attempt ended was taken by
// its dispatcher or is in the journal with all its records, unless that is in memory. Then the contexts of Connect
// and Serve may end. The error is that of ctx; the agent goes on to take no calls.
func (a *Agent) Drain(ctx context.Context) error {
	select {
	case <-a.attempts.drain():
		a.endGone()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endGone journals of what has ended without an end, now that nothing runs, that it is gone: else the journal does not
// tell it from what is under way. One that ends with a reboot may have brought that about.
func (a *Agent) endGone() {
	j := a.journal.current()
	if j == nil {
		return
	}
	for _, h := range j.Held() {
		if h.State != journal.Started && h.State != journal.Stopping || infoOf(h).Ends == endsReboot {
			continue
		}
		end := &wire.End{Gone: true, Stopped: pastOf(h).Stopping, Started: &wire.Started{Time: h.Started.UnixNano()}, Records: h.Records}
		_, _, _ = j.End(h.Key, journal.End{Body: encodeEnd(end, nil), Records: h.Records}) // it may have been forgotten just now
	}
	if err := j.Sync(); err != nil {
		a.log.Warn("that attempts are gone is not journalled", "error", err.Error())
	}
}
