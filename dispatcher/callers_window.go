package dispatcher

import (
	"context"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

func handleWindows(ctx context.Context, s harp.Service, w wire.WindowsQuery) (any, error) {
	rows, cursor, err := listing[harp.WindowStatus]{
		fetch:  func(cursor string) (harp.Page[harp.WindowStatus], error) { return s.ListWindows(ctx, w.Name, cursor) },
		mark:   func(w harp.WindowStatus) mark { return mark{Key: w.Name} },
		before: byKey,
	}.page(w.Page)
	return wire.Windows{Windows: rows, Cursor: cursor}, err
}

func handlePutWindow(ctx context.Context, s harp.Service, w wire.PutWindow) (any, error) {
	if err := harp.CheckID(w.Request); err != nil {
		return nil, err
	}
	if err := w.Window.Check(); err != nil {
		return nil, err
	}
	return wire.Done{}, s.PutWindow(ctx, w.Request, w.Window)
}

func handleDeleteWindow(ctx context.Context, s harp.Service, w wire.WindowRef) (any, error) {
	if err := harp.CheckID(w.Request); err != nil {
		return nil, err
	}
	return wire.Done{}, s.DeleteWindow(ctx, w.Request, w.Name)
}

func handleEndWindow(ctx context.Context, s harp.Service, w wire.WindowRef) (any, error) {
	if err := harp.CheckID(w.Request); err != nil {
		return nil, err
	}
	return wire.Done{}, s.EndWindow(ctx, w.Request, w.Name)
}

func handleWindowSpans(ctx context.Context, s harp.Service, w wire.WindowSpans) (any, error) {
	if w.Window != nil {
		if err := harp.CheckPreview(*w.Window, w.From, w.To); err != nil {
			return nil, err
		}
		spans, err := s.PreviewWindow(ctx, *w.Window, w.From, w.To)
		return spansAnswer(spans), err
	}
	if err := harp.CheckSpans(w.Name, w.From, w.To); err != nil {
		return nil, err
	}
	spans, err := s.WindowSpans(ctx, w.Name, w.From, w.To)
	return spansAnswer(spans), err
}

func spansAnswer(spans []harp.Span) wire.Spans {
	return wire.Spans{Spans: wire.NewRows(spans, harp.MaxWindowSpans)}
}

func handleJudgeStart(ctx context.Context, s harp.Service, w wire.JudgeStart) (any, error) {
	if err := harp.CheckStart(w.Host, w.Procedure, w.At); err != nil {
		return nil, err
	}
	v, err := s.JudgeStart(ctx, w.Host, w.Procedure, w.At)
	return wire.Judged{Verdict: v, Obstacles: wire.NewRows(v.Obstacles, wire.MaxRows)}, err
}

func handlePauseHosts(ctx context.Context, s harp.Service, w wire.PauseHosts) (any, error) {
	if err := harp.CheckID(w.Request); err != nil {
		return nil, err
	}
	if err := w.Check(); err != nil {
		return nil, err
	}
	n, err := s.PauseHosts(ctx, w.Request, w.Target, w.HostPauseChange)
	return wire.Done{Count: n}, err
}
