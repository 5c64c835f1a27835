package dispatcher

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wake"
	"github.com/harpcaller/harp/store"
)

// While documents are refused they are applied again by themselves: the server of a calendar may be back, or the folder mounted.
const (
	documentRetry        = 10 * time.Second // after the first time; twice that after each further one
	longestDocumentRetry = 5 * time.Minute
)

// readDocuments reads documents, as ReplaceDocuments asks for them.
type readDocuments = func() (documents []harp.Document, explain func(error) error, err error)

// ownDocuments are the documents that the dispatcher reads itself, by who manages them.
type ownDocuments struct {
	replacing chan struct{} // 1 slot: one set at a time
	changed   chan struct{} // others may be refused

	mu      sync.Mutex // guards what follows
	refused map[string]refusedDocuments
}

// refusedDocuments are documents that were refused.
type refusedDocuments struct {
	read readDocuments
	err  error
	wait time.Duration // before they are applied again
	at   time.Time     // when they are, on the monotonic clock
}

func newOwnDocuments() ownDocuments {
	return ownDocuments{replacing: make(chan struct{}, 1), changed: make(chan struct{}, 1), refused: map[string]refusedDocuments{}}
}

// noteOutcome notes what became of documents, and reports whether they were refused, and for another reason than they were.
func (o *ownDocuments) noteOutcome(managedBy string, read readDocuments, wait time.Duration, err error) (isOther bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer wake.Signal(o.changed)
	if err == nil {
		delete(o.refused, managedBy)
		return false
	}
	before, was := o.refused[managedBy]
	o.refused[managedBy] = refusedDocuments{read: read, err: err, wait: wait, at: time.Now().Add(wait)}
	return !was || before.err.Error() != err.Error()
}

// refusal is why documents were refused; nil: none are.
func (o *ownDocuments) refusal() error {
	_, of, refused := o.nextRetry()
	if !refused {
		return nil
	}
	return fmt.Errorf("%w; tried again in %v", of.err, max(time.Until(of.at), 0).Round(time.Second))
}

// nextRetry are the documents that are applied again first.
func (o *ownDocuments) nextRetry() (managedBy string, of refusedDocuments, found bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, one := range o.refused {
		if !found || one.at.Before(of.at) {
			managedBy, of, found = name, one, true
		}
	}
	return managedBy, of, found
}

// ReplaceDocuments applies the documents that read returns for managedBy, and deletes what was applied for it before and is in none
// any more. When they are refused, all stays as it was, and an event, EventDocumentsRefused, and [Dispatcher.Health] say so until they
// are not; the dispatcher reads and applies them again by itself, after 10 seconds at first and each 5 minutes at last, until they are
// applied or ReplaceDocuments is called again. ctx bounds this time only: when it ends before they are applied or refused, they are
// neither. explain, which read returns too, is asked where an error about one of the documents is; nil: nobody knows.
//
// Errors: read's, explain's, those of [harp.Schedules.Apply].
func (d *Dispatcher) ReplaceDocuments(ctx context.Context, managedBy string, read func() (documents []harp.Document, explain func(error) error, err error)) (harp.Applied, error) {
	done, _, err := d.replaceDocuments(ctx, managedBy, read, documentRetry)
	if err != nil && ctx.Err() == nil {
		d.writeRefusedEvent(ctx, managedBy, err)
	}
	return done, err
}

// replaceDocuments applies documents, and notes for how long they wait to be applied again if they are refused.
func (d *Dispatcher) replaceDocuments(ctx context.Context, managedBy string, read readDocuments, wait time.Duration) (done harp.Applied, isOther bool, err error) {
	select {
	case d.documents.replacing <- struct{}{}:
		defer func() { <-d.documents.replacing }()
	case <-ctx.Done():
		return harp.Applied{}, false, context.Cause(ctx)
	}
	documents, explain, err := read()
	if err == nil {
		done, err = d.Caller().Schedules().Apply(ctx, managedBy, documents, harp.ApplyOptions{Prune: true})
		if err != nil && explain != nil {
			err = explain(err)
		}
	}
	if ctx.Err() != nil {
		return done, false, err
	}
	return done, d.documents.noteOutcome(managedBy, read, wait, err), err
}

// documentsLoop applies documents again that were refused.
func (d *Dispatcher) documentsLoop() {
	timer := time.NewTimer(longestDocumentRetry)
	defer timer.Stop()
	for {
		managedBy, of, found := d.documents.nextRetry()
		if timer.Stop(); found {
			timer.Reset(time.Until(of.at))
		}
		select {
		case <-d.ctx.Done():
			return
		case <-d.documents.changed:
			continue
		case <-timer.C:
		}
		d.retryDocuments(managedBy, of)
	}
}

// retryDocuments applies documents again that were refused.
func (d *Dispatcher) retryDocuments(managedBy string, of refusedDocuments) {
	done, isOther, err := d.replaceDocuments(d.ctx, managedBy, of.read, min(2*of.wait, longestDocumentRetry))
	switch {
	case d.ctx.Err() != nil:
	case err == nil:
		d.log.Info("documents are applied that were refused", "managed_by", managedBy, "changes", done.Count)
	case isOther:
		d.log.Error("documents are refused; keeping the previous ones", "managed_by", managedBy, "err", err)
		d.writeRefusedEvent(d.ctx, managedBy, err)
	}
}

// writeRefusedEvent writes the event of documents that were refused. Where that cannot be, Health tells all the same.
func (d *Dispatcher) writeRefusedEvent(ctx context.Context, managedBy string, err error) {
	reason := managedBy + ": " + strings.ReplaceAll(err.Error(), "\n", "; ") + "; they are tried again"
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
