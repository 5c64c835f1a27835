package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/when"
)

// fetchedCalendar is what a fake fetches from any URL.
const fetchedCalendar = "BEGIN:VCALENDAR\nEND:VCALENDAR\n"

// maintenanceFake is what a fake answers about windows and pauses, and what it was told.
type maintenanceFake struct {
	all     []harp.WindowStatus
	verdict harp.Verdict
	err     error

	put       []harp.Window
	deleted   []string
	ended     []string
	procedure string // that was asked about
	at        time.Time
	from, to  time.Time
	pauses    []harp.HostPauseChange
	paused    []string // the targets
}

// PutWindow keeps a window, and finds its spans by package window, in UTC where it names no zone.
func (f *fake) PutWindow(_ context.Context, _ string, w harp.Window) error {
	f.maintenance.put = append(f.maintenance.put, w)
	if f.maintenance.err != nil {
		return f.maintenance.err
	}
	source, err := when.WindowSource(&w, []byte(fetchedCalendar))
	if err != nil {
		return err
	}
	s := harp.WindowStatus{Window: w, By: harp.Principal{Kind: "caller", Name: "ops"}, Changed: f.schedules.now}
	for span := range source.Between(f.schedules.now, f.schedules.now.AddDate(1, 0, 0)) {
		s.Open, s.Span = span.Covers(f.schedules.now), harp.Span(span)
		break
	}
	f.forgetWindow(w.Name)
	f.maintenance.all = append(f.maintenance.all, s)
	return nil
}

// forgetWindow deletes a window, and reports whether there was one.
func (f *fake) forgetWindow(name string) bool {
	before := len(f.maintenance.all)
	f.maintenance.all = slices.DeleteFunc(f.maintenance.all, func(s harp.WindowStatus) bool { return s.Name == name })
	return len(f.maintenance.all) < before
}

func (f *fake) DeleteWindow(_ context.Context, _, name string) error {
	f.maintenance.deleted = append(f.maintenance.deleted, name)
	if !f.forgetWindow(name) {
		return failures.NotFound("window", name)
	}
	return f.maintenance.err
}

func (f *fake) EndWindow(_ context.Context, _, name string) error {
	f.maintenance.ended = append(f.maintenance.ended, name)
	return f.maintenance.err
}

func (f *fake) ListWindows(_ context.Context, name, _ string) (harp.Page[harp.WindowStatus], error) {
	f.listed()
	found := slices.Clone(f.maintenance.all)
	if name != "" {
		found = slices.DeleteFunc(found, func(s harp.WindowStatus) bool { return s.Name != name })
	}
	return harp.Page[harp.WindowStatus]{Items: found}, nil
}

func (f *fake) WindowSpans(ctx context.Context, name string, from, to time.Time) ([]harp.Span, error) {
	f.maintenance.from, f.maintenance.to = from, to
	i := slices.IndexFunc(f.maintenance.all, func(s harp.WindowStatus) bool { return s.Name == name })
	if i < 0 {
		return nil, failures.NotFound("window", name)
	}
	return f.PreviewWindow(ctx, f.maintenance.all[i].Window, from, to)
}

func (f *fake) PreviewWindow(_ context.Context, w harp.Window, from, to time.Time) (spans []harp.Span, _ error) {
	source, err := when.WindowSource(&w, []byte(fetchedCalendar))
	if err != nil {
		return nil, err
	}
	for span := range source.Between(from, to) {
		spans = append(spans, harp.Span(span))
	}
	return spans, nil
}

func (f *fake) JudgeStart(_ context.Context, host, procedure string, at time.Time) (harp.Verdict, error) {
	f.maintenance.procedure, f.maintenance.at = procedure, at
	if !slices.ContainsFunc(f.hosts, func(h harp.HostStatus) bool { return h.Name == host }) {
		return harp.Verdict{}, failures.NotFound("host", host)
	}
	return f.maintenance.verdict, f.maintenance.err
}

func (f *fake) PauseHosts(_ context.Context, _, expr string, c harp.HostPauseChange) (int, error) {
	f.maintenance.paused = append(f.maintenance.paused, expr)
	f.maintenance.pauses = append(f.maintenance.pauses, c)
	if f.changing != nil {
		return f.changing(expr)
	}
	if len(f.hosts) == 0 {
		return 0, errors.New("no host")
	}
	return len(f.hosts), f.maintenance.err
}
