package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
)

// Retention rules are documents of the store, which reads them itself: which of them holds for what ends it decides in the
// commit of the end.

// retentionRules returns the documents of all rules, in the order in which they are asked.
func (d *Dispatcher) retentionRules(ctx context.Context) ([]store.RetentionDocument, error) {
	all, damaged, err := d.readRetentionRules(ctx)
	for _, name := range damaged {
		d.log.Error("retention rule cannot be read", "rule", name)
	}
	return all, err
}

// readRetentionRules returns also the names of those that cannot be read.
func (d *Dispatcher) readRetentionRules(ctx context.Context) (all []store.RetentionDocument, damaged []string, err error) {
	for cursor := ""; ; {
		page, next, err := d.store.ListDocuments(ctx, store.RetentionKind, cursor, harp.MaxRetentionRules)
		if err != nil {
			return nil, nil, err
		}
		for _, document := range page {
			doc, err := store.ReadRetention(document.Content)
			if err != nil {
				damaged = append(damaged, document.Name)
				continue
			}
			all = append(all, doc)
		}
		if cursor = next; next == "" {
			slices.SortFunc(all, func(a, b store.RetentionDocument) int { return a.Rule.Compare(b.Rule) })
			return all, damaged, nil
		}
	}
}

// retentionProblem is why not all is kept for as long as it was to be; nil: it is.
func (d *Dispatcher) retentionProblem(ctx context.Context) error {
	_, damaged, err := d.readRetentionRules(ctx)
	problems := []error{err}
	if len(damaged) > 0 {
		problems = append(problems, fmt.Errorf("%d rules cannot be read and hold for nothing that ends: put them anew, or delete them: the first is %s", len(damaged), damaged[0]))
	}
	if slices.ContainsFunc(d.store.RetentionClasses(), store.RetentionClass.IsLost) {
		problems = append(problems, errors.New("how long some jobs are to be kept cannot be read: they are kept until retain_bytes needs the room"))
	}
	return errors.Join(problems...)
}

// findRule returns the one of this name; nil if there is none.
func findRule(rules []store.RetentionDocument, name string) *store.RetentionDocument {
	i := slices.IndexFunc(rules, func(doc store.RetentionDocument) bool { return doc.Rule.Name == name })
	if i < 0 {
		return nil
	}
	return &rules[i]
}

func errTooManyRules() error {
	return failures.New("refused", fmt.Sprintf("there are %d retention rules, more there cannot be", harp.MaxRetentionRules)).Err()
}

// checkRules refuses a rule beyond those that a principal may have, when so many others are to be made by it, too. Errors: harp.ErrRefused.
func checkRules(rules []store.RetentionDocument, name string, who harp.Principal, others int) error {
	has, more := documentRoom{count: 1 + others}, documentRoom{count: 1}
	for _, doc := range rules {
		switch {
		case doc.By != who:
		case doc.Rule.Name == name:
			more.count = 0
		default:
			has.count++
		}
	}
	return checkHalf(who, "retention rules", has, more, documentRoom{count: harp.MaxRetentionRules})
}

// RetentionRules implements harp.RetentionService.
func (s *service) RetentionRules(ctx context.Context) ([]harp.RetentionStatus, error) {
	return request(s, ctx, func(ctx context.Context) ([]harp.RetentionStatus, error) {
		rules, err := s.d.retentionRules(ctx)
		if err != nil {
			return nil, err
		}
		classes := s.d.store.RetentionClasses()
		var out []harp.RetentionStatus
		for _, doc := range rules {
			status := harp.RetentionStatus{RetentionRule: doc.Rule, ManagedBy: doc.ManagedBy, By: doc.By, Changed: doc.Changed}
			for _, c := range classes {
				if c.IsOf(&doc.Rule) {
					status.Bytes = c.Bytes
				}
			}
			out = append(out, status)
		}
		return out, nil
	})
}

// PutRetentionRule implements harp.RetentionService.
func (s *service) PutRetentionRule(ctx context.Context, id string, r harp.RetentionRule) error {
	return s.changeRule(ctx, id, r.Name, wire.SetRetention{Rule: r}, func(rules []store.RetentionDocument, now time.Time) (*store.RetentionDocument, error) {
		if err := r.Check(); err != nil {
			return nil, err
		}
		if findRule(rules, r.Name) == nil && len(rules) >= harp.MaxRetentionRules {
			return nil, errTooManyRules()
		}
		if err := checkRules(rules, r.Name, s.who, 0); err != nil {
			return nil, err
		}
		return &store.RetentionDocument{Rule: r, By: s.who, Changed: now.UTC()}, nil
	})
}

// DeleteRetentionRule implements harp.RetentionService.
func (s *service) DeleteRetentionRule(ctx context.Context, id, name string) error {
	return s.changeRule(ctx, id, name, wire.DeleteRetention{Name: name}, func(rules []store.RetentionDocument, _ time.Time) (*store.RetentionDocument, error) {
		// One that cannot be read is not among them, and is deleted all the same.
		if stored, err := s.d.storedRule(ctx, name); err != nil || !stored {
			if err == nil {
				err = failures.NotFound("retention rule", name)
			}
			return nil, err
		}
		return nil, nil
	})
}

// storedRule reports whether there is a rule of this name, be it one that cannot be read.
func (d *Dispatcher) storedRule(ctx context.Context, name string) (bool, error) {
	_, err := d.store.Document(ctx, store.RetentionKind, name)
	if errors.Is(err, harp.ErrNotFound) {
		return false, nil
	}
	if errors.Is(err, store.ErrDamaged) {
		err = nil
	}
	return true, err
}

// changeRule changes the rule of a name once for an id: change is given all rules, and returns what is put in its place, nil: none.
func (s *service) changeRule(ctx context.Context, id, name string, message any, change func(rules []store.RetentionDocument, now time.Time) (*store.RetentionDocument, error)) error {
	_, err := requestChange(s, ctx, func(ctx context.Context) (none struct{}, err error) {
		operation, kind := s.documentsOperation, wire.TypeDeleteRetention
		if _, puts := message.(wire.SetRetention); puts {
			operation, kind = s.puttingOperation, wire.TypeSetRetention
		}
		op, err := operation(id, kind, message)
		if err != nil {
			return none, err
		}
		s.d.changingRules.Lock()
		defer s.d.changingRules.Unlock()
		if _, done, err := s.d.changedBefore(ctx, op, "retention rule", name); done || err != nil {
			return none, err
		}
		rules, err := s.d.retentionRules(ctx)
		if err != nil {
			return none, err
		}
		if is := findRule(rules, name); is != nil && is.ManagedBy != "" {
			return none, s.d.rememberRefusal(ctx, op, errManaged(harp.RetentionDocument, name, is.ManagedBy))
		}
		to, err := change(rules, op.Time)
		if err != nil {
			return none, s.d.rememberRefusal(ctx, op, err)
		}
		var content []byte
		if to != nil {
			content = to.Encode()
		}
		return none, s.d.replaceDocument(ctx, op, store.RetentionKind, name, content, ruleChanged(name, op.Time, op.By))
	})
	return err
}

// ruleChanged tells that a rule was made, changed or deleted.
func ruleChanged(name string, at time.Time, by harp.Principal) harp.Event {
	return harp.Event{Type: harp.EventRetentionChanged, Time: at, Reason: name, By: by}
}

// ExplainRetention implements harp.RetentionService.
func (s *service) ExplainRetention(ctx context.Context, id string) (harp.Kept, error) {
	return request(s, ctx, func(ctx context.Context) (harp.Kept, error) {
		kept := harp.Kept{ID: id}
		j, err := s.d.store.Job(ctx, id)
		of := id
		switch {
		case err == nil && j.Batch == "":
			return s.d.explainKept(kept, j.State.Ended(), j.EndTime, j.Class), nil
		case err == nil:
			of, kept.Batch = j.Batch, j.Batch
		case !errors.Is(err, harp.ErrNotFound):
			return harp.Kept{}, err
		}
		b, also := s.d.store.Batch(ctx, of)
		if also != nil {
			if errors.Is(also, harp.ErrNotFound) && err != nil {
				also = err // it is no batch either: jobs are asked after most
			}
			return harp.Kept{}, also
		}
		return s.d.explainKept(kept, b.State.Ended(), b.EndTime, b.Class), nil
	})
}

// explainKept says how long what has ended at a time is kept that is of a class.
func (d *Dispatcher) explainKept(kept harp.Kept, isEnded bool, at time.Time, class uint32) harp.Kept {
	if !isEnded {
		return kept
	}
	kept.Ended, kept.Keep, kept.MaxBytes = at.UTC(), d.cfg.Retain, d.cfg.RetainBytes
	for _, c := range d.store.RetentionClasses() {
		if c.No != class {
			continue
		}
		if kept.Rule, kept.MaxBytes = c.Rule, c.MaxBytes; c.Keep != 0 {
			kept.Keep = c.Keep
		}
	}
	if kept.Keep != harp.NoLimit {
		kept.Until = kept.Ended.Add(kept.Keep)
	}
	return kept
}

// readRules reads the retention rules there are.
func (a *application) readRules(ctx context.Context) (err error) {
	a.rules, err = a.d.retentionRules(ctx)
	return err
}

// managedRules are the names of those that somebody manages.
func managedRules(rules []store.RetentionDocument, managedBy string) (names []string) {
	for _, doc := range rules {
		if doc.ManagedBy == managedBy {
			names = append(names, doc.Rule.Name)
		}
	}
	return names
}

// planRules plans what becomes of retention rules.
func (a *application) planRules(ctx context.Context) error {
	count := len(a.rules)
	if a.options.Prune {
		for _, name := range managedRules(a.rules, a.managedBy) {
			if a.has(harp.RetentionDocument, name) {
				continue
			}
			count--
			a.noteDeleted(harp.RetentionDocument, name)
			if err := a.storeDocument(ctx, store.RetentionKind, name, nil, ruleChanged(name, time.Time{}, a.who)); err != nil {
				return err
			}
		}
	}
	for i, doc := range a.documents {
		if doc.Retention == nil {
			continue
		}
		isNew, err := a.planRule(ctx, doc, count-len(a.rules))
		if err != nil {
			return harp.InDocument(i, err)
		}
		if isNew {
			count++
		}
	}
	if count > harp.MaxRetentionRules && count > len(a.rules) {
		return errTooManyRules()
	}
	return nil
}

// planRule plans what becomes of the rule of a document, beside so many others that are made.
func (a *application) planRule(ctx context.Context, doc harp.Document, others int) (isNew bool, err error) {
	to := store.RetentionDocument{Rule: *doc.Retention, By: a.who, Changed: a.d.now().UTC(), ManagedBy: a.managedBy}
	old := findRule(a.rules, to.Rule.Name)
	var fields []harp.FieldChange
	managedBy := ""
	if old != nil {
		managedBy = old.ManagedBy
		if fields, err = fieldChanges(old.Rule, to.Rule, old.Rule, to.Rule); err != nil {
			return false, err
		}
	}
	if changes, err := a.note(doc, old != nil, managedBy, fields); err != nil || !changes {
		return false, err
	}
	if err := checkRules(a.rules, to.Rule.Name, a.who, max(others, 0)); err != nil {
		return false, err
	}
	return old == nil, a.storeDocument(ctx, store.RetentionKind, to.Rule.Name, to.Encode(), ruleChanged(to.Rule.Name, time.Time{}, a.who))
}
