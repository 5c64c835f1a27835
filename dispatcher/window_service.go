package dispatcher

import (
	"context"
	"fmt"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/target"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/window"
)

// PutWindow implements harp.MaintenanceService.
func (s *service) PutWindow(ctx context.Context, id string, w harp.Window) error {
	_, err := request(s, ctx, func(ctx context.Context) (none struct{}, err error) {
		if err := w.Check(); err != nil {
			return none, err
		}
		op, err := s.puttingOperation(id, wire.TypePutWindow, wire.PutWindow{Window: w})
		if err != nil {
			return none, err
		}
		if isFetched(&w) { // else it costs nothing to read it again
			if _, done, err := s.d.changedBefore(ctx, op, "window", w.Name); done || err != nil {
				return none, err
			}
		}
		to, broken := s.openWindow(ctx, w, op.Time)
		endTurn, err := s.awaitChange(ctx)
		if err != nil {
			return none, err
		}
		defer endTurn()
		return none, s.d.changeWindow(ctx, op, w.Name, func(*openWindow) (*openWindow, error) {
			if broken != nil { // it is said only now: it may have been put by this operation before, and be past since
				return nil, broken
			}
			return to, s.d.windows.checkTarget(target.NewGroups(s.d.groups.texts()), to)
		})
	})
	return err
}

// openWindow reads a window that is put: a calendar, in turn, as that takes a while, after it was fetched if it has a URL. Errors:
// harp.ErrInvalid, naming the field; ctx's.
func (s *service) openWindow(ctx context.Context, w harp.Window, now time.Time) (*openWindow, error) {
	doc := windowDocument{By: s.who, Changed: now.UTC()}
	if w.TZ == "" && w.From.IsZero() {
		w.TZ = s.d.cfg.TimeZone
	}
	if err := wire.Decode(wire.Encode(w), &doc.Window); err != nil { // w is its caller's
		return nil, err
	}
	if isFetched(&doc.Window) {
		return s.fetchFor(ctx, doc)
	}
	if w.Calendar != nil {
		weight := weightOfBytes(len(w.Calendar.Content))
		if err := s.d.turns.awaitTurn(ctx, s.who, weight); err != nil {
			return nil, err
		}
		defer s.d.turns.leaveTurn(s.who, weight)
	}
	to := newOpenWindow(doc, 0)
	if to.err != nil {
		return nil, to.err
	}
	return to, to.checkFuture(now)
}

// DeleteWindow implements harp.MaintenanceService.
func (s *service) DeleteWindow(ctx context.Context, id, name string) error {
	return s.changeWindow(ctx, id, name, wire.TypeDeleteWindow, func(is *openWindow, _ time.Time) (*openWindow, error) { return nil, nil })
}

// EndWindow implements harp.MaintenanceService.
func (s *service) EndWindow(ctx context.Context, id, name string) error {
	return s.changeWindow(ctx, id, name, wire.TypeEndWindow, func(is *openWindow, now time.Time) (*openWindow, error) {
		doc := is.windowDocument
		switch span := (window.Span{From: doc.Window.From, To: doc.Window.To}); {
		case doc.Window.From.IsZero():
			return nil, conflictOf("window", "window "+name+" recurs, so it cannot be ended: delete or replace it")
		case !span.Covers(now):
			return nil, conflictOf("window", "window "+name+" is not open")
		}
		doc.Window.To = now.UTC()
		return newOpenWindow(doc, 0), nil
	})
}

// changeWindow is that of the dispatcher for a window that must be there.
func (s *service) changeWindow(ctx context.Context, id, name string, kind transport.Type, change func(is *openWindow, now time.Time) (*openWindow, error)) error {
	_, err := requestChange(s, ctx, func(ctx context.Context) (none struct{}, err error) {
		op, err := s.documentsOperation(id, kind, wire.WindowRef{Name: name})
		if err != nil {
			return none, err
		}
		return none, s.d.changeWindow(ctx, op, name, func(is *openWindow) (*openWindow, error) {
			if is == nil {
				return nil, failures.NotFound("window", name)
			}
			return change(is, op.Time)
		})
	})
	return err
}

// ListWindows implements harp.MaintenanceService.
func (s *service) ListWindows(ctx context.Context, name, cursor string) (harp.Page[harp.WindowStatus], error) {
	type page = harp.Page[harp.WindowStatus]
	return request(s, ctx, func(ctx context.Context) (page, error) {
		items, next := s.d.windows.page(name, cursor, pageSize)
		endTurn, err := s.awaitSpans(ctx, items...)
		if err != nil {
			return page{}, err
		}
		defer endTurn()
		out, now := page{Cursor: next}, s.d.now()
		for _, w := range items {
			if ctx.Err() != nil {
				return page{}, context.Cause(ctx)
			}
			out.Items = append(out.Items, w.status(now, name != "", s.d.windows.problemOf(w)))
		}
		return out, nil
	})
}

// awaitSpans returns when it is the caller's turn to find spans of windows, which takes a while for large calendars, and what ends the
// turn. Errors: ctx's.
func (s *service) awaitSpans(ctx context.Context, windows ...*openWindow) (endTurn func(), err error) {
	size := 0
	for _, w := range windows {
		size += w.size
	}
	weight := weightOfBytes(size)
	if err := s.d.turns.awaitTurn(ctx, s.who, weight); err != nil {
		return nil, err
	}
	return func() { s.d.turns.leaveTurn(s.who, weight) }, nil
}

// status is the window as callers see it, with the content of its calendar or without. problem is why it cannot be told.
func (w *openWindow) status(now time.Time, whole bool, problem error) harp.WindowStatus {
	out := harp.WindowStatus{Window: w.Window, ManagedBy: w.ManagedBy, By: w.By, Changed: w.Changed, Err: problem, Fetch: w.Copy.fetch()}
	if c := w.Window.Calendar; c != nil && !whole {
		without := *c
		without.Content = nil
		out.Calendar = &without
	}
	if w.err != nil {
		return out
	}
	if span, found := window.First(w.window.Source, now, now.AddDate(1, 0, 0)); found {
		out.Span, out.Open = harp.Span(span), span.Covers(now)
	}
	return out
}

// WindowSpans implements harp.MaintenanceService.
func (s *service) WindowSpans(ctx context.Context, name string, from, to time.Time) ([]harp.Span, error) {
	return request(s, ctx, func(ctx context.Context) (spans []harp.Span, err error) {
		if err := harp.CheckSpans(name, from, to); err != nil {
			return nil, err
		}
		w, err := s.d.windows.find(name)
		switch {
		case err != nil:
			return nil, err
		case w.err != nil:
			return nil, w.err
		}
		endTurn, err := s.awaitSpans(ctx, w)
		if err != nil {
			return nil, err
		}
		defer endTurn()
		return w.spans(ctx, from, to)
	})
}

// spans are the first of a window that have a moment in [from, to). Errors: ctx's.
func (w *openWindow) spans(ctx context.Context, from, to time.Time) (spans []harp.Span, err error) {
	for span := range w.window.Source.Between(from, to) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if spans = append(spans, harp.Span(span)); len(spans) == harp.MaxWindowSpans {
			break
		}
	}
	return spans, nil
}

// PreviewWindow implements harp.MaintenanceService.
func (s *service) PreviewWindow(ctx context.Context, w harp.Window, from, to time.Time) ([]harp.Span, error) {
	return request(s, ctx, func(ctx context.Context) ([]harp.Span, error) {
		if err := harp.CheckPreview(w, from, to); err != nil {
			return nil, err
		}
		is, err := s.openWindow(ctx, w, s.d.now())
		if err != nil {
			return nil, err
		}
		if old, err := s.d.windows.find(w.Name); err == nil && old.ManagedBy != "" {
			return nil, errManaged(harp.WindowDocument, w.Name, old.ManagedBy)
		}
		if err := s.d.windows.checkTarget(target.NewGroups(s.d.groups.texts()), is); err != nil {
			return nil, err
		}
		is.size = len(wire.Encode(is.windowDocument))
		if err := s.d.windows.checkRoom(is); err != nil {
			return nil, err
		}
		endTurn, err := s.awaitSpans(ctx, is)
		if err != nil {
			return nil, err
		}
		defer endTurn()
		return is.spans(ctx, from, to)
	})
}

// JudgeStart implements harp.MaintenanceService.
func (s *service) JudgeStart(ctx context.Context, host, procedure string, at time.Time) (harp.Verdict, error) {
	return request(s, ctx, func(context.Context) (harp.Verdict, error) {
		if err := harp.CheckStart(host, procedure, at); err != nil {
			return harp.Verdict{}, err
		}
		h := s.d.hosts.findKnown(host)
		if h == nil {
			return harp.Verdict{}, failures.NotFound("host", host)
		}
		now := s.d.now()
		if at.IsZero() {
			at = now
		}
		start := window.Start{Procedure: procedure}
		if doc, found := h.findProcedure(procedure); found {
			start.ReadOnly = isReadOnly(doc)
		}
		v, concerns := h.judgeStart(start, at)
		switch {
		case !concerns:
			return harp.Verdict{At: at.UTC(), May: true}, nil
		case v.Unknown && at.Before(now):
			return harp.Verdict{}, &harp.FieldError{Field: "at", Message: fmt.Sprintf("must be at most %v ago, as far as windows are known", gatesBehind)}
		case v.Unknown && at.After(now):
			return harp.Verdict{}, &harp.FieldError{Field: "at", Message: fmt.Sprintf("must be before %s, as far as windows are known", v.KnownUntil.UTC().Format(time.RFC3339))}
		}
		return s.d.callersVerdict(v), nil
	})
}
