package rows

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

const (
	maxDocument     = 1 << 20 // bytes of the largest document
	maxDocumentPage = 1 << 20 // bytes of documents in a page, about
	maxChange       = maxOp - maxStep
)

// Document implements store.Documents.
func (r *Reader) Document(_ context.Context, kind, name string) ([]byte, error) {
	var content []byte
	err := r.view(func(snap Snapshot) error {
		payload, _, err := loadValue(documentKey(kind, name), snap.Get)
		if err == nil && payload == nil {
			err = failures.NotFound(kind, name)
		}
		content = append([]byte{}, payload...)
		return err
	})
	return content, err
}

// ListDocuments implements store.Documents.
func (r *Reader) ListDocuments(_ context.Context, kind, cursor string, limit int) (page []store.Document, next string, err error) {
	next, err = r.pageDocuments(kind, prefixDocument, cursor, limit, func(snap Snapshot, item Item, name string) (int, error) {
		content, err := joinItem(snap, item)
		switch {
		case errors.Is(err, ErrDamaged):
			r.log.Error("document cannot be read", "kind", kind, "name", name, "err", err)
			page = append(page, store.Document{Name: name})
			return 0, nil
		case err != nil:
			return 0, err
		}
		page = append(page, store.Document{Name: name, Content: append([]byte{}, content...)})
		return len(content), nil
	})
	return page, next, err
}

// pageDocuments has take look at up to limit documents of a kind, from the one after the cursor, until what it
// took has some bytes. The cursor is one of a listing: prefix says of which.
func (r *Reader) pageDocuments(kind string, prefix byte, cursor string, limit int, take func(snap Snapshot, item Item, name string) (int, error)) (next string, err error) {
	after, err := openNameCursor(prefix, cursor)
	if err != nil {
		return "", err
	}
	before := documentKey(kind, "")
	last, taken, size := "", 0, 0
	err = r.view(func(snap Snapshot) error {
		for item, err := range snap.Scan(before, documentKey(kind, after), false) {
			if err != nil {
				return err
			}
			name := string(item.Key[len(before):])
			if name == after && cursor != "" {
				continue
			}
			if taken == pageLimit(limit) || size >= maxDocumentPage {
				next = nameCursor(prefix, last)
				return nil
			}
			n, err := take(snap, item, name)
			if err != nil {
				return err
			}
			last, taken, size = name, taken+1, size+n
		}
		return nil
	})
	return next, err
}

// PutDocument implements store.Documents.
func (s *Store) PutDocument(ctx context.Context, kind, name string, content []byte) error {
	if err := checkDocument(kind, content); err != nil {
		return err
	}
	return s.do(ctx, SpaceLow, func(t *tx) error {
		key := documentKey(kind, name)
		if err := t.readOld(key); err != nil {
			return err
		}
		t.put(key, content)
		s.noteDocument(kind, name, content)
		return nil
	})
}

func checkDocument(kind string, content []byte) error {
	if len(content) > maxDocument {
		return &harp.FieldError{Field: kind, Message: "is longer than 1 MiB"}
	}
	if kind == store.RetentionKind && content != nil {
		return checkRule(content)
	}
	return nil
}

// ChangeDocuments implements store.Documents. What only deletes needs no more room than a
// cancel.
func (s *Store) ChangeDocuments(ctx context.Context, c store.DocumentChanges) (int, error) {
	if err := checkChanges(c.Changes, c.Steps); err != nil {
		return 0, err
	}
	steps, size, err := prepareSteps(c.Steps)
	if err != nil {
		return 0, err
	}
	events, n := noteRows(c.Events)
	size += n
	needs := SpaceCritical
	for _, step := range steps {
		needs = max(needs, step.needs())
	}
	for _, one := range c.Changes {
		size += len(one.Kind) + len(one.Name) + len(one.New) + 2*WriteCost
		if one.New != nil {
			needs = max(needs, SpaceLow)
		}
	}
	if size > maxChange {
		return 0, tooMuch("documents", size, maxChange)
	}
	op := c.Op
	var done doneRow
	asked := s.asked()
	err = s.do(ctx, needs, func(t *tx) (err error) {
		op.Time = s.sched.Since(asked, op.Time)
		done, err = s.doOnce(t, op, documentsRow{By: op.By, Asked: op.Asked}, func() (doneRow, error) {
			if err := s.makeChanges(t, c.Changes, steps, nanos(op.Time)); err != nil {
				return doneRow{}, err
			}
			s.emitRows(t, events)
			return doneRow{Count: c.Count}, nil
		})
		return err
	})
	if err != nil {
		return 0, err
	}
	return done.Count, nil
}

// prepareSteps prepares the steps of schedules that are made together, and returns how many bytes they write, about. Errors:
// harp.ErrInvalid.
func prepareSteps(in []store.ScheduleStep) (steps []*stepping, size int, err error) {
	for _, one := range in {
		if one.Batch != nil {
			return nil, 0, &harp.FieldError{Field: "steps", Message: "fire no batch together"}
		}
		step, err := prepareStep(one)
		if err != nil {
			return nil, 0, err
		}
		steps, size = append(steps, step), size+step.size+len(one.Name)+3*WriteCost
	}
	return steps, size, nil
}

// makeChanges changes documents and makes steps of schedules. Errors: harp.ErrConflict, the engine's.
func (s *Store) makeChanges(t *tx, changes []store.DocumentChange, steps []*stepping, now int64) error {
	if err := t.checkDocuments(changes); err != nil {
		return err
	}
	rows := make([]store.Schedule, len(steps))
	for i, step := range steps {
		var err error
		if rows[i], err = s.checkStep(t, step, now); err != nil {
			return err
		}
	}
	t.writeDocuments(changes)
	for _, c := range changes {
		s.noteDocument(c.Kind, c.Name, c.New)
	}
	for i, step := range steps {
		s.writeStep(t, step, rows[i], now)
	}
	return nil
}

// checkChanges refuses a document that is too long, and one that is changed twice, or the schedule of which is. Errors:
// *harp.FieldError.
func checkChanges(changes []store.DocumentChange, steps []store.ScheduleStep) error {
	seen := make(map[[2]string]bool, len(changes)+len(steps))
	changes = slices.Clone(changes)
	for _, step := range steps {
		changes = append(changes, store.DocumentChange{Kind: store.ScheduleKind, Name: step.Name})
	}
	for _, c := range changes {
		if err := checkDocument(c.Kind, c.New); err != nil {
			return err
		}
		of := [2]string{c.Kind, c.Name}
		if seen[of] {
			return &harp.FieldError{Field: c.Kind, Message: fmt.Sprintf("%s is changed twice", c.Name)}
		}
		seen[of] = true
	}
	return nil
}

// checkDocuments refuses changes of documents that are not what they are to be before. Errors: harp.ErrConflict, the
// engine's.
func (t *tx) checkDocuments(changes []store.DocumentChange) error {
	for _, c := range changes {
		key := documentKey(c.Kind, c.Name)
		content, err := t.get(key)
		if errors.Is(err, ErrDamaged) {
			content, err = nil, t.readOld(key)
		}
		if err != nil {
			return err
		}
		if (content == nil) != (c.Old == nil) || !bytes.Equal(content, c.Old) {
			return failures.New("conflict", c.Kind+" "+c.Name+" is not what it was").Err()
		}
	}
	return nil
}

// writeDocuments makes changes that checkDocuments does not refuse.
func (t *tx) writeDocuments(changes []store.DocumentChange) {
	for _, c := range changes {
		key := documentKey(c.Kind, c.Name)
		if c.New == nil {
			t.remove(key)
			continue
		}
		t.put(key, c.New)
	}
}

// DocumentsChanged implements store.Documents.
func (s *Store) DocumentsChanged(ctx context.Context, op store.Operation) (count int, done bool, err error) {
	i, ok := parseID(op.ID)
	if !ok {
		return 0, false, harp.CheckID(op.ID)
	}
	digest := sha256.Sum256(encode(documentsRow{By: op.By, Asked: op.Asked}))
	err = s.doAhead(ctx, SpaceFull, func(t *tx) error {
		row, again, err := s.readDone(t, i, digest)
		if count, done = row.Count, again; err == nil && !done {
			err = op.Refused
		}
		return err
	})
	return count, done, err
}
