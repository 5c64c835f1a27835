package client

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
)

// feed is what a desk has beside jobs: events and what operators asked for.
type feed struct {
	events  []harp.Event // numbered from 1 by note
	pruned  int          // events before this number are not kept
	moved   chan struct{}
	given   map[string]string // jobs that were given up, and why
	changes []harp.QueueChange
	before  time.Time // of Prune
	copied  []byte    // what Backup writes
}

// note adds events to the feed.
func (d *desk) note(events ...harp.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range events {
		e.Cursor = strconv.Itoa(len(d.feed.events) + 1)
		d.feed.events = append(d.feed.events, e)
	}
	if d.feed.moved != nil {
		close(d.feed.moved)
		d.feed.moved = nil
	}
}

// eventsAfter is a page of the feed as it is now, and what is closed when there is more.
func (d *desk) eventsAfter(f harp.EventFilter) (harp.EventPage, <-chan struct{}, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.feed.moved == nil {
		d.feed.moved = make(chan struct{})
	}
	all := d.feed.events
	page := harp.EventPage{Cursor: strconv.Itoa(len(all))}
	var from int
	switch f.After {
	case harp.EventsFromNow:
		return page, d.feed.moved, nil
	case harp.EventsFromStart:
		from = d.feed.pruned
	default:
		n, err := strconv.Atoi(f.After)
		if err != nil || n < 0 || n > len(all) {
			return harp.EventPage{}, nil, &harp.FieldError{Field: "after", Message: "is no cursor"}
		}
		if from = n; from < d.feed.pruned {
			return harp.EventPage{}, nil, harp.ErrPruned
		}
	}
	to := len(all)
	if d.pageSize > 0 {
		to = min(to, from+d.pageSize)
	}
	page.Cursor = strconv.Itoa(to)
	for _, e := range all[from:to] {
		if selects(f, e) {
			page.Events = append(page.Events, e)
		}
	}
	if to > from {
		return page, nil, nil
	}
	return page, d.feed.moved, nil
}

func selects(f harp.EventFilter, e harp.Event) bool {
	if f.Job != "" && f.Job != e.Job || f.Host != "" && f.Host != e.Host {
		return false
	}
	for _, t := range f.Types {
		if beginning, ok := strings.CutSuffix(t, "*"); t == string(e.Type) || ok && strings.HasPrefix(string(e.Type), beginning) {
			return true
		}
	}
	return len(f.Types) == 0
}

func (f *fake) Events(ctx context.Context, filter harp.EventFilter, wait bool) (harp.EventPage, error) {
	if err := f.enter(ctx, "Events"); err != nil {
		return harp.EventPage{}, err
	}
	page, moved, err := f.eventsAfter(filter)
	if err != nil || moved == nil || !wait {
		return page, err
	}
	if err := f.wait(ctx, moved); err != nil {
		return harp.EventPage{}, err
	}
	filter.After = page.Cursor
	page, _, err = f.eventsAfter(filter)
	return page, err
}

func (f *fake) JobRequest(ctx context.Context, id string) (harp.Submission, error) {
	if err := f.enter(ctx, "JobRequest"); err != nil {
		return harp.Submission{}, err
	}
	j, err := f.find(id)
	if err != nil {
		return harp.Submission{}, err
	}
	return harp.Submission{Request: j.request.Encode(), Signature: []byte("signed"), KeyID: "key"}, nil
}

func (f *fake) ForceLost(ctx context.Context, id, why string) error {
	if err := f.enter(ctx, "ForceLost"); err != nil {
		return err
	}
	if _, err := f.find(id); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.feed.given == nil {
		f.feed.given = map[string]string{}
	}
	f.feed.given[id] = why
	return nil
}

func (f *fake) ChangeQueue(ctx context.Context, _ string, name harp.Value, c harp.QueueChange) error {
	if err := f.enter(ctx, "ChangeQueue"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, q := range f.queues {
		if string(q.Name) != string(name) {
			continue
		}
		if c.Paused != nil {
			f.queues[i].Paused = *c.Paused
		}
		if c.Concurrency != nil {
			f.queues[i].Concurrency = *c.Concurrency
		}
		f.feed.changes = append(f.feed.changes, c)
		return nil
	}
	return failures.NotFound("queue", name.String())
}

func (f *fake) Prune(ctx context.Context, endedBefore time.Time) (int, error) {
	if err := f.enter(ctx, "Prune"); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.feed.before = endedBefore
	return len(f.jobs), nil
}

func (f *fake) Backup(ctx context.Context, w io.Writer) error {
	if err := f.enter(ctx, "Backup"); err != nil {
		return err
	}
	_, err := w.Write(f.feed.copied)
	return err
}
