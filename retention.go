package harp

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Retention says how long what has ended is kept, by rules, and changes these. It is safe for concurrent use.
type Retention struct{ service Service }

// Retention returns the handle for the rules that say what is kept.
func (c *Caller) Retention() *Retention { return &Retention{service: c.service} }

// RetentionRule says how long jobs and batches are kept after their ends. Of the rules, by their Order and then their
// names, the first one that fits holds for a job as it ends, and from then on, whatever becomes of the rule. What none
// fits is kept as the dispatcher's own retention says. A rule fits where all that it names does; one that names nothing
// fits everything. A batch is kept whole: its own state counts, and nothing of its members.
type RetentionRule struct {
	Name  string `json:"name" msgpack:"name"`                       // 1 to MaxRetentionName bytes, none of them of a control character
	Doc   string `json:"doc,omitempty" msgpack:"doc,omitempty"`     // for people
	Order int    `json:"order,omitempty" msgpack:"order,omitempty"` // rules with a lower one are asked first; of the same one by their names

	Procedure string            `json:"procedure,omitempty" msgpack:"proc,omitempty"`    // * is any text, ? one character; default: all
	Schedule  string            `json:"schedule,omitempty" msgpack:"schedule,omitempty"` // whose run it is, as in Procedure; default: any, or none
	States    []State           `json:"states,omitempty" msgpack:"states,omitempty"`     // in which it has ended; a batch is succeeded, failed or cancelled
	Labels    map[string]string `json:"labels,omitempty" msgpack:"labels,omitempty"`     // all of which it has

	Keep     time.Duration `json:"keep,omitempty" msgpack:"keep,omitempty"`       // after its end; [NoLimit]: for ever; default: as long as what no rule fits
	MaxBytes int64         `json:"max_bytes,omitempty" msgpack:"bytes,omitempty"` // that what this rule keeps may store, about: beyond it goes what ended first; 0: any number
}

// Check returns ErrInvalid, naming the field, unless the rule is within its limits and says how long, or how much, is
// kept.
func (r RetentionRule) Check() error {
	if err := checkShown("name", r.Name, MaxRetentionName); err != nil {
		return err
	}
	for _, text := range []struct {
		field, value string
		most         int
	}{{"doc", r.Doc, MaxScheduleDoc}, {"procedure", r.Procedure, MaxProcedureName}, {"schedule", r.Schedule, MaxScheduleName}} {
		if err := checkText(text.field, text.value, text.most); err != nil {
			return err
		}
	}
	if r.Order < math.MinInt32 || r.Order > math.MaxInt32 {
		return &FieldError{Field: "order", Message: "must fit into 32 bits"}
	}
	for i, s := range r.States {
		if !s.Ended() {
			return &FieldError{Field: "states", Message: fmt.Sprintf("%q is none in which a job has ended", s)}
		}
		if slices.Contains(r.States[:i], s) {
			return &FieldError{Field: "states", Message: fmt.Sprintf("%s is there twice", s)}
		}
	}
	if err := CheckLabels(r.Labels); err != nil {
		return err
	}
	switch {
	case r.Keep < 0:
		return &FieldError{Field: "keep", Message: "must not be negative"}
	case r.MaxBytes < 0:
		return &FieldError{Field: "max_bytes", Message: "must not be negative"}
	case r.Keep == 0 && r.MaxBytes == 0:
		return &FieldError{Field: "keep", Message: "a rule needs keep or max_bytes"}
	}
	return nil
}

// Compare says which of two rules is asked first: negative, r is.
func (r RetentionRule) Compare(other RetentionRule) int {
	return cmp.Or(cmp.Compare(r.Order, other.Order), strings.Compare(r.Name, other.Name))
}

// RetentionStatus is a rule and what it keeps.
type RetentionStatus struct {
	RetentionRule
	ManagedBy string    `msgpack:"managed,omitempty"` // who applies its document; "": it was put by hand
	By        Principal `msgpack:"by"`                // who put it
	Changed   time.Time `msgpack:"changed"`           // when
	Bytes     int64     `msgpack:"stored,omitempty"`  // that what it keeps stores, about; counted only of a rule with MaxBytes
}

// Kept says how long a job or a batch is kept.
type Kept struct {
	ID       string        `json:"id" msgpack:"id"`                               // of the job or the batch
	Batch    string        `json:"batch,omitempty" msgpack:"batch,omitempty"`     // of a member, which is kept as long as its batch
	Ended    time.Time     `json:"ended,omitzero" msgpack:"ended,omitempty"`      // zero: it, or its batch, has not, and no rule holds yet
	Rule     string        `json:"rule,omitempty" msgpack:"rule,omitempty"`       // that held as it ended; "": none
	Keep     time.Duration `json:"keep,omitempty" msgpack:"keep,omitempty"`       // after its end; NoLimit: for ever
	MaxBytes int64         `json:"max_bytes,omitempty" msgpack:"bytes,omitempty"` // that what the rule keeps may store
	Until    time.Time     `json:"until,omitzero" msgpack:"until,omitempty"`      // then it is deleted, or earlier for want of room; zero: at no time
}

// List returns all rules in the order in which they are asked. Errors: ErrUnavailable, ErrClosed.
func (r *Retention) List(ctx context.Context) ([]RetentionStatus, error) {
	return r.service.RetentionRules(ctx)
}

// Put makes a rule, or replaces the one of its name. It holds for what ends from then on. Errors: ErrInvalid, naming the field,
// as [RetentionRule.Check] says, ErrRefused (there are MaxRetentionRules), ErrConflict (its document is applied by whoever is
// named), ErrDenied, ErrUnavailable, ErrClosed.
func (r *Retention) Put(ctx context.Context, rule RetentionRule) error {
	if err := rule.Check(); err != nil {
		return err
	}
	return r.service.PutRetentionRule(ctx, NewID(), rule)
}

// Delete deletes a rule: what it keeps stays as long as it said. Errors: ErrInvalid (no name), ErrNotFound, ErrConflict (its
// document is applied by whoever is named), ErrDenied, ErrUnavailable, ErrClosed.
func (r *Retention) Delete(ctx context.Context, name string) error {
	if err := checkName("name", name, MaxRetentionName); err != nil {
		return err
	}
	return r.service.DeleteRetentionRule(ctx, NewID(), name)
}

// Explain says how long a job, or a batch, is kept. Errors: ErrInvalid (the id), ErrNotFound, ErrPruned, ErrUnavailable,
// ErrClosed.
func (r *Retention) Explain(ctx context.Context, id string) (Kept, error) {
	if err := CheckJobID(id); err != nil {
		return Kept{}, err
	}
	return r.service.ExplainRetention(ctx, id)
}
