package rows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// Reader reads what is committed, over views of an engine, which is not closed while there is one.
// It knows neither what is being written nor what may start next: that is a [Store]'s.
type Reader struct {
	engine Engine
	log    *slog.Logger
	id     string

	closing  chan struct{}   // closed by Close
	open     context.Context // ends with it
	shut     context.CancelCauseFunc
	readers  sync.RWMutex // held for reading while a view is open
	closed   bool         // guarded by readers
	closeErr error        // guarded by readers
	broken   atomic.Pointer[error]
	failed   chan struct{} // closed once broken is set
}

// start makes a Reader of an engine; a nil logger discards.
func (r *Reader) start(e Engine, log *slog.Logger) {
	if r.engine, r.log = e, log; log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	r.closing, r.failed = make(chan struct{}), make(chan struct{})
	r.open, r.shut = context.WithCancelCause(context.Background())
}

// stop has everything but views that are open refused.
func (r *Reader) stop() {
	close(r.closing)
	r.shut(harp.ErrClosed)
}

// closeEngine closes the engine once the last view is closed, and returns what that came to. After
// harp.ErrNoSpace it tries again.
func (r *Reader) closeEngine() error {
	r.readers.Lock()
	defer r.readers.Unlock()
	if !r.closed {
		r.closeErr = r.engine.Close()
		r.closed = !errors.Is(r.closeErr, harp.ErrNoSpace)
	}
	return r.closeErr
}

// ID implements store.Store.
func (r *Reader) ID() string { return r.id }

// view calls f with a view of what is committed. Errors: harp.ErrClosed,
// store.ErrPoisoned, f's.
func (r *Reader) view(f func(snap Snapshot) error) error {
	r.readers.RLock()
	defer r.readers.RUnlock()
	if err := r.usable(); err != nil {
		return err
	}
	snap, err := r.engine.View()
	if err != nil {
		return err
	}
	defer snap.Close()
	return f(snap)
}

// usable is why nothing can be read any more: harp.ErrClosed or store.ErrPoisoned.
func (r *Reader) usable() error {
	select {
	case <-r.closing:
		return harp.ErrClosed
	default:
		return r.poisoned()
	}
}

// holdOpen calls f while the engine stays open. Errors: harp.ErrClosed,
// store.ErrPoisoned, f's.
func (r *Reader) holdOpen(f func() error) error {
	r.readers.RLock()
	defer r.readers.RUnlock()
	if err := r.usable(); err != nil {
		return err
	}
	return f()
}

// poison makes the store refuse everything from now on, if err is one.
func (r *Reader) poison(err error) {
	if err == nil {
		return
	}
	err = fmt.Errorf("%w: %w", store.ErrPoisoned, err)
	if r.broken.CompareAndSwap(nil, &err) {
		close(r.failed)
	}
}

// poisoned returns ErrPoisoned once a commit has failed.
func (r *Reader) poisoned() error {
	if err := r.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// viewJob is view for what is asked about one job.
func (r *Reader) viewJob(text string, f func(snap Snapshot, i id) error) error {
	i, ok := parseID(text)
	return r.view(func(snap Snapshot) error {
		if !ok {
			return notFound(text)
		}
		return f(snap, i)
	})
}

// Request implements store.Jobs.
func (r *Reader) Request(_ context.Context, text string) (harp.Submission, error) {
	var out harp.Submission
	err := r.viewJob(text, func(snap Snapshot, i id) error {
		var call callRow
		isJob, failed := read(snap, i.key(prefixCall), &call)
		switch {
		case failed != nil && !errors.Is(failed, ErrDamaged):
			return failed
		case call.Request != nil && failed == nil:
			out = *call.Request
			return nil
		case i.isMember() && failed == nil && isJob:
			out, failed = r.batchRequest(snap, call.Batch)
			return failed
		}
		found, err := read(snap, i.key(prefixRequest), &out)
		switch {
		case err != nil || found:
			return err
		case failed == nil && !isJob:
			return absentError(snap, i)
		}
		return cmp.Or(failed, fmt.Errorf("%w: job %s has no request", ErrDamaged, i))
	})
	return out, err
}

// Value implements store.Jobs.
func (r *Reader) Value(_ context.Context, text string) (harp.Value, error) {
	var v harp.Value
	err := r.viewJob(text, func(snap Snapshot, i id) error {
		var life lifeRow
		if _, err := read(snap, i.key(prefixLife), &life); err != nil && !errors.Is(err, ErrDamaged) {
			return err
		} else if err == nil && life.Value != nil {
			v = life.Value
			return nil
		}
		payload, _, err := loadValue(i.key(prefixValue), snap.Get)
		if err != nil || payload != nil {
			v = slices.Clone(payload)
			return err
		}
		j, err := readJob(snap, i)
		if err == nil && isValued(&j.Life) {
			err = fmt.Errorf("%w: job %s has no value", ErrDamaged, i)
		}
		return err
	})
	return v, err
}
