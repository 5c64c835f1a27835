package dispatcher

import (
	"context"
	"strings"
	"sync"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// documentsHealth is why the documents that the dispatcher reads itself were refused last; nil: they were not.
type documentsHealth struct {
	mu  sync.Mutex // guards err
	err error
}

func (h *documentsHealth) set(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

func (h *documentsHealth) problem() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// ReplaceDocuments applies the documents that read returns for managedBy, and deletes what was applied for it before and is in none
// any more. When they are refused, all stays as it was, and an event, EventDocumentsRefused, and [Dispatcher.Health] say so until they
// are not. explain, which read returns too, is asked where an error about one of the documents is; nil: nobody knows. Errors: read's,
// explain's, those of [harp.Schedules.Apply].
func (d *Dispatcher) ReplaceDocuments(ctx context.Context, managedBy string, read func() (documents []harp.Document, explain func(error) error, err error)) (harp.Applied, error) {
	documents, explain, err := read()
	var done harp.Applied
	if err == nil {
		done, err = d.Caller().Schedules().Apply(ctx, managedBy, documents, harp.ApplyOptions{Prune: true})
		if err != nil && explain != nil {
			err = explain(err)
		}
	}
	d.documents.set(err)
	if err != nil {
		d.writeRefusedEvent(ctx, managedBy, err)
	}
	return done, err
}

// writeRefusedEvent writes the event of documents that were refused. Where that cannot be, Health tells all the same.
func (d *Dispatcher) writeRefusedEvent(ctx context.Context, managedBy string, err error) {
	reason := managedBy + ": " + strings.ReplaceAll(err.Error(), "\n", "; ")
	if len(reason) > harp.MaxWhy {
		reason = strings.ToValidUTF8(reason[:harp.MaxWhy], "")
	}
	_, err = d.store.ChangeDocuments(ctx, store.DocumentChanges{Events: []harp.Event{
		{Type: harp.EventDocumentsRefused, Time: d.now(), Reason: reason},
	}})
	if err != nil {
		d.log.Warn("the event of documents that were refused cannot be written", "err", err)
	}
}
