package client

import (
	"context"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// PutWindow implements harp.MaintenanceService.
func (r *remote) PutWindow(ctx context.Context, id string, w harp.Window) error {
	_, err := requestReply[wire.Done](ctx, r, wire.TypePutWindow, wire.PutWindow{Request: id, Window: w}, false)
	return err
}

// DeleteWindow implements harp.MaintenanceService.
func (r *remote) DeleteWindow(ctx context.Context, id, name string) error {
	_, err := requestReply[wire.Done](ctx, r, wire.TypeDeleteWindow, wire.WindowRef{Request: id, Name: name}, false)
	return err
}

// EndWindow implements harp.MaintenanceService.
func (r *remote) EndWindow(ctx context.Context, id, name string) error {
	_, err := requestReply[wire.Done](ctx, r, wire.TypeEndWindow, wire.WindowRef{Request: id, Name: name}, false)
	return err
}

// ListWindows implements harp.MaintenanceService.
func (r *remote) ListWindows(ctx context.Context, name, cursor string) (harp.Page[harp.WindowStatus], error) {
	q := wire.WindowsQuery{Name: name, Page: wire.Page{Cursor: cursor}}
	m, err := requestReply[wire.Windows](ctx, r, wire.TypeWindows, q, false)
	return pageAfter[harp.WindowStatus](cursor, m.Windows, m.Cursor, err)
}

// WindowSpans implements harp.MaintenanceService.
func (r *remote) WindowSpans(ctx context.Context, name string, from, to time.Time) ([]harp.Span, error) {
	return r.askSpans(ctx, wire.WindowSpans{Name: name, From: from, To: to})
}

// PreviewWindow implements harp.MaintenanceService.
func (r *remote) PreviewWindow(ctx context.Context, w harp.Window, from, to time.Time) ([]harp.Span, error) {
	return r.askSpans(ctx, wire.WindowSpans{Window: &w, From: from, To: to})
}

func (r *remote) askSpans(ctx context.Context, of wire.WindowSpans) ([]harp.Span, error) {
	m, err := requestReply[wire.Spans](ctx, r, wire.TypeWindowSpans, of, false)
	p, err := page[harp.Span](m.Spans, "", err)
	return p.Items, err
}

// JudgeStart implements harp.MaintenanceService.
func (r *remote) JudgeStart(ctx context.Context, host, procedure string, at time.Time) (harp.Verdict, error) {
	m, err := requestReply[wire.Judged](ctx, r, wire.TypeJudgeStart, wire.JudgeStart{Host: host, Procedure: procedure, At: at}, false)
	if err != nil {
		return harp.Verdict{}, err
	}
	obstacles, err := wire.DecodeRows[harp.Obstacle](m.Obstacles)
	if err != nil {
		return harp.Verdict{}, unreadable(err)
	}
	m.Verdict.Obstacles = obstacles
	return m.Verdict, nil
}

// PauseHosts implements harp.MaintenanceService.
func (r *remote) PauseHosts(ctx context.Context, id, text string, c harp.HostPauseChange) (int, error) {
	if err := checkTarget(wire.TypePauseHosts, text, 0); err != nil {
		return 0, err
	}
	m, err := requestReply[wire.Done](ctx, r, wire.TypePauseHosts, wire.PauseHosts{Request: id, Target: text, HostPauseChange: c}, false)
	return m.Count, err
}
