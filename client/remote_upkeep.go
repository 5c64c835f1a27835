package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// JobRequest implements harp.JobService.
func (r *remote) JobRequest(ctx context.Context, id string) (harp.Submission, error) {
	return requestReply[harp.Submission](ctx, r, wire.TypeRequest, wire.JobRef{ID: id}, false)
}

// ForceLost implements harp.JobService.
func (r *remote) ForceLost(ctx context.Context, id, why string) error {
	_, err := requestReply[wire.Done](ctx, r, wire.TypeForceLost, wire.ForceLost{ID: id, Why: why}, false)
	return err
}

// ChangeQueue implements harp.QueueService.
func (r *remote) ChangeQueue(ctx context.Context, id string, name harp.Value, c harp.QueueChange) error {
	m := wire.QueueChange{Request: id, Name: name, QueueChange: c}
	_, err := requestReply[wire.Done](ctx, r, wire.TypeChangeQueue, m, false)
	return err
}

// ListGroups implements harp.GroupService.
func (r *remote) ListGroups(ctx context.Context, name, cursor string) (harp.Page[harp.Group], error) {
	q := wire.GroupsQuery{Name: name, Page: wire.Page{Cursor: cursor}}
	m, err := requestReply[wire.Groups](ctx, r, wire.TypeGroups, q, false)
	return pageAfter[harp.Group](cursor, m.Groups, m.Cursor, err)
}

// PutGroup implements harp.GroupService.
func (r *remote) PutGroup(ctx context.Context, id, name, text string) error {
	_, err := requestReply[wire.Done](ctx, r, wire.TypePutGroup, wire.PutGroup{Request: id, Name: name, Target: text}, false)
	return err
}

// DeleteGroup implements harp.GroupService.
func (r *remote) DeleteGroup(ctx context.Context, id, name string) error {
	_, err := requestReply[wire.Done](ctx, r, wire.TypeDeleteGroup, wire.DeleteGroup{Request: id, Name: name}, false)
	return err
}

// Events implements harp.EventService. To wait for what happens from now on it first asks
// what now is: asked again after a loss, "from now" would be another moment.
func (r *remote) Events(ctx context.Context, f harp.EventFilter, wait bool) (harp.EventPage, error) {
	if wait && f.After == harp.EventsFromNow {
		page, err := r.events(ctx, wire.EventsQuery{EventFilter: f}, true)
		if err != nil || len(page.Events) > 0 {
			return page, err
		}
		f.After = page.Cursor
	}
	return r.events(ctx, wire.EventsQuery{EventFilter: f, Wait: wait}, wait)
}

func (r *remote) events(ctx context.Context, q wire.EventsQuery, patient bool) (harp.EventPage, error) {
	m, err := requestReply[wire.Events](ctx, r, wire.TypeEvents, q, patient)
	if err == nil && q.Wait && m.Cursor == q.After {
		err = errStays
	}
	p, err := page[harp.Event](m.Events, m.Cursor, err)
	return harp.EventPage{Events: p.Items, Cursor: p.Cursor}, err
}

// Prune implements harp.UpkeepService.
func (r *remote) Prune(ctx context.Context, endedBefore time.Time) (int, error) {
	m, err := requestReply[wire.Done](ctx, r, wire.TypePrune, wire.Prune{EndedBefore: endedBefore}, false)
	return m.Count, err
}

// Backup implements harp.UpkeepService. It is asked for once: what w has taken cannot be
// taken back.
func (r *remote) Backup(ctx context.Context, w io.Writer) error {
	s, err := r.reconnector.awaitSession(ctx, r.reconnector.dialer.cfg.RetryFor)
	if err != nil {
		return err
	}
	err = s.copyTo(ctx, w)
	switch {
	case err == nil || !isLost(err):
		return err
	case r.reconnector.ctx.Err() != nil:
		return harp.ErrClosed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return r.reconnector.dialer.hostError("read", harp.ErrUnavailable, err)
}

// copyTo asks for a backup and writes its chunks to w.
func (s *session) copyTo(ctx context.Context, w io.Writer) error {
	x, err := s.Exchange()
	if err != nil {
		return tooManyErr(err)
	}
	defer x.Release()
	defer context.AfterFunc(ctx, x.Release)() // ends a Send that waits
	if err := x.Send(wire.TypeBackup, true, nil); err != nil {
		return err
	}
	var written int64
	for {
		f, err := x.Receive(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return unreadable(errors.New("the last frame is a chunk"))
		case err != nil:
			return err
		case f.Type != wire.TypeChunk:
			body, err := replyBody(f)
			if err != nil {
				return err
			}
			return allCopied(body, written)
		}
		n, err := writeChunk(w, f.Body)
		if written += int64(n); err != nil {
			return err
		}
	}
}

func writeChunk(w io.Writer, body []byte) (int, error) {
	var chunk wire.Chunk
	if err := decodeReply(body, &chunk); err != nil {
		return 0, err
	}
	n, err := w.Write(chunk.Bytes)
	if err != nil {
		return n, fmt.Errorf("write the backup: %w", err)
	}
	return n, nil
}

// allCopied checks that no chunk is missing.
func allCopied(body []byte, written int64) error {
	var end wire.Copied
	if err := decodeReply(body, &end); err != nil {
		return err
	}
	if end.Bytes != written {
		return unreadable(fmt.Errorf("%d of %d bytes of the backup came", written, end.Bytes))
	}
	return nil
}
