package client

import (
	"context"
	"time"

	"github.com/harpcaller/harp"
)

var _ harp.MaintenanceService = (*fake)(nil)

// fakeWindows are the windows of a fake. None of them keeps anything back.
type fakeWindows struct {
	all    []harp.WindowStatus
	ended  []string
	pauses []harp.HostPauseChange
}

func (f *fake) PutWindow(ctx context.Context, _ string, w harp.Window) error {
	if err := f.enter(ctx, "PutWindow"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.windows.all = append(f.windows.all, harp.WindowStatus{Window: w, Open: true, Span: harp.Span{From: at(1), To: at(2), Note: "moved"}})
	return nil
}

func (f *fake) DeleteWindow(ctx context.Context, _, _ string) error {
	return f.enter(ctx, "DeleteWindow")
}

func (f *fake) EndWindow(ctx context.Context, _, name string) error {
	f.mu.Lock()
	f.windows.ended = append(f.windows.ended, name)
	f.mu.Unlock()
	return f.enter(ctx, "EndWindow")
}

func (f *fake) ListWindows(ctx context.Context, name, cursor string) (harp.Page[harp.WindowStatus], error) {
	if err := f.enter(ctx, "ListWindows"); err != nil {
		return harp.Page[harp.WindowStatus]{}, err
	}
	var found []harp.WindowStatus
	for _, w := range f.windows.all {
		if name == "" || w.Name == name {
			found = append(found, w)
		}
	}
	return pageOf(found, cursor, f.pageSize, func(w harp.WindowStatus) string { return w.Name })
}

func (f *fake) WindowSpans(ctx context.Context, _ string, from, to time.Time) ([]harp.Span, error) {
	if err := f.enter(ctx, "WindowSpans"); err != nil {
		return nil, err
	}
	var spans []harp.Span
	for ; from.Before(to) && len(spans) < harp.MaxWindowSpans; from = from.Add(time.Hour) {
		spans = append(spans, harp.Span{From: from, To: from.Add(time.Minute), Note: "weekly"})
	}
	return spans, nil
}

func (f *fake) PreviewWindow(ctx context.Context, w harp.Window, from, to time.Time) ([]harp.Span, error) {
	if err := f.enter(ctx, "PreviewWindow"); err != nil {
		return nil, err
	}
	return []harp.Span{{From: from, To: to, Note: w.Name + " " + w.Target}}, nil
}

func (f *fake) JudgeStart(ctx context.Context, host, procedure string, at time.Time) (harp.Verdict, error) {
	if err := f.enter(ctx, "JudgeStart"); err != nil {
		return harp.Verdict{}, err
	}
	v := harp.Verdict{At: at, Mode: harp.WindowRefuse, Until: at.Add(time.Hour), KnownUntil: at.Add(24 * time.Hour)}
	for range 1000 {
		v.Obstacles = append(v.Obstacles, harp.Obstacle{Reason: harp.ReasonWindow, Until: v.Until, Window: host, Why: procedure, Only: true})
	}
	return v, nil
}

func (f *fake) PauseHosts(ctx context.Context, _, expr string, c harp.HostPauseChange) (int, error) {
	f.mu.Lock()
	f.windows.pauses = append(f.windows.pauses, c)
	f.mu.Unlock()
	return len(expr), f.enter(ctx, "PauseHosts")
}
