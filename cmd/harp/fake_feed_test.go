package main

import (
	"bytes"
	"context"
	"io"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
)

// feed is what a fake has beside jobs.
type feed struct {
	requests  map[string]harp.Request // of jobs
	forced    map[string]string       // jobs that were given up, and why
	events    []harp.Event            // all of one page, after which there are none
	atEnd     func()                  // called when all events were given; nil: the feed is pruned there
	selected  harp.EventFilter
	changes   []harp.QueueChange
	before    time.Time
	copied    []byte
	backupErr error
}

func (f *fake) JobRequest(_ context.Context, id string) (harp.Submission, error) {
	r, ok := f.feed.requests[id]
	if !ok {
		return harp.Submission{}, failures.NotFound("job", id)
	}
	return harp.Submission{Request: r.Encode()}, nil
}

func (f *fake) ForceLost(_ context.Context, id, why string) error {
	if _, err := f.find(id); err != nil {
		return err
	}
	if f.feed.forced == nil {
		f.feed.forced = map[string]string{}
	}
	f.feed.forced[id] = why
	return nil
}

func (f *fake) ChangeQueue(_ context.Context, _ string, name harp.Value, c harp.QueueChange) error {
	for _, q := range f.queues {
		if bytes.Equal(q.Name, name) {
			f.feed.changes = append(f.feed.changes, c)
			return nil
		}
	}
	return failures.NotFound("queue", name.String())
}

func (f *fake) Events(ctx context.Context, filter harp.EventFilter, wait bool) (harp.EventPage, error) {
	if filter.After == "end" && f.feed.atEnd == nil {
		return harp.EventPage{}, harp.ErrPruned
	}
	if filter.After == "end" || len(f.feed.events) == 0 {
		f.feed.atEnd()
		if wait {
			<-ctx.Done()
		}
		return harp.EventPage{Cursor: filter.After}, context.Cause(ctx)
	}
	f.feed.selected = filter
	return harp.EventPage{Events: f.feed.events, Cursor: "end"}, nil
}

func (f *fake) Prune(_ context.Context, endedBefore time.Time) (int, error) {
	f.feed.before = endedBefore
	return len(f.jobs), nil
}

func (f *fake) Backup(_ context.Context, w io.Writer) error {
	if _, err := w.Write(f.feed.copied); err != nil {
		return err
	}
	return f.feed.backupErr
}
