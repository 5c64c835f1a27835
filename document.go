package harp

import (
	"context"
	"fmt"
	"slices"
)

// Document is a schedule, a group, a window, a notification or a retention rule as people keep it in a file: exactly one of the fields is set. Of a Group
// only its Name and its Target count.
type Document struct {
	Schedule     *Schedule      `json:"schedule,omitempty" msgpack:"schedule,omitempty"`
	Group        *Group         `json:"group,omitempty" msgpack:"group,omitempty"`
	Window       *Window        `json:"window,omitempty" msgpack:"window,omitempty"`
	Notification *Notification  `json:"notification,omitempty" msgpack:"notification,omitempty"`
	Retention    *RetentionRule `json:"retention,omitempty" msgpack:"retention,omitempty"`
}

// DocumentKind says what a document is of.
type DocumentKind string

// The kinds of documents.
const (
	ScheduleDocument     DocumentKind = "schedule"
	GroupDocument        DocumentKind = "group"
	WindowDocument       DocumentKind = "window"
	NotificationDocument DocumentKind = "notification"
	RetentionDocument    DocumentKind = "retention"
)

// Kind returns what the document is of; "" for none.
func (d Document) Kind() DocumentKind {
	switch {
	case d.Schedule != nil:
		return ScheduleDocument
	case d.Group != nil:
		return GroupDocument
	case d.Window != nil:
		return WindowDocument
	case d.Notification != nil:
		return NotificationDocument
	case d.Retention != nil:
		return RetentionDocument
	}
	return ""
}

// Name returns the name of what the document is of.
func (d Document) Name() string {
	switch {
	case d.Schedule != nil:
		return d.Schedule.Name
	case d.Group != nil:
		return d.Group.Name
	case d.Window != nil:
		return d.Window.Name
	case d.Notification != nil:
		return d.Notification.Name
	case d.Retention != nil:
		return d.Retention.Name
	}
	return ""
}

// Check returns ErrInvalid, naming the field, unless the document is of exactly one thing, which its own Check
// accepts.
func (d Document) Check() error {
	set := 0
	for _, is := range []bool{d.Schedule != nil, d.Group != nil, d.Window != nil, d.Notification != nil, d.Retention != nil} {
		if is {
			set++
		}
	}
	switch {
	case set != 1:
		return &FieldError{Field: "kind", Message: fmt.Sprintf("must be one of %s, %s, %s, %s and %s", ScheduleDocument, GroupDocument, WindowDocument, NotificationDocument, RetentionDocument)}
	case d.Schedule != nil:
		return d.Schedule.Check()
	case d.Group != nil:
		return d.Group.Check()
	case d.Window != nil:
		return d.Window.Check()
	case d.Notification != nil:
		return d.Notification.Check()
	default:
		return d.Retention.Check()
	}
}

// CheckDocuments returns ErrInvalid, naming the field, such as documents[3].cron, unless documents may be given to
// [Schedules.Apply]: MaxDocuments at most, each of which is good and has a name of its own among those of its kind.
func CheckDocuments(managedBy string, documents []Document) error {
	if err := checkShown("managed_by", managedBy, MaxManagedBy); err != nil {
		return err
	}
	if len(documents) > MaxDocuments {
		return &FieldError{Field: "documents", Message: fmt.Sprintf("%d, at most %d", len(documents), MaxDocuments)}
	}
	type named struct {
		kind DocumentKind
		name string
	}
	seen := make(map[named]bool, len(documents))
	for i, d := range documents {
		err := d.Check()
		of := named{d.Kind(), d.Name()}
		if err == nil && seen[of] {
			err = &FieldError{Field: "name", Message: fmt.Sprintf("there are two documents of %s %s", of.kind, of.name)}
		}
		if err != nil {
			return InDocument(i, err)
		}
		seen[of] = true
	}
	return nil
}

// InDocument returns the error of a document as one of several: a [*FieldError] then names the field as
// documents[i].FIELD.
func InDocument(i int, err error) error {
	field, ok := err.(*FieldError) //nolint:errorlint // a wrapped one says more
	if !ok {
		return err
	}
	return &FieldError{Field: fmt.Sprintf("documents[%d].%s", i, field.Field), Message: field.Message}
}

// ApplyOptions say how [Schedules.Apply] treats documents.
type ApplyOptions struct {
	Prune  bool `msgpack:"prune,omitempty"` // what was applied under this name before, and is in no document any more, is deleted
	DryRun bool `msgpack:"dry,omitempty"`   // everything is looked at, and nothing is changed
}

// Applied is what Apply has changed, or would change.
type Applied struct {
	Count   int              // how many documents
	Changes []DocumentChange // by kind and name; only the first where all of them exceed an answer, and none where an answer was lost and is given again
}

// DocumentChange is a change of what one document is of.
type DocumentChange struct {
	Kind   DocumentKind   `json:"kind" msgpack:"kind"`
	Name   string         `json:"name" msgpack:"name"`
	Action DocumentAction `json:"action" msgpack:"action"`
	Fields []FieldChange  `json:"fields,omitempty" msgpack:"fields,omitempty"` // of a change, by their names; none where all of them exceed an answer
}

// DocumentAction says what becomes of what a document is of.
type DocumentAction string

// The actions.
const (
	DocumentMade    DocumentAction = "made"
	DocumentChanged DocumentAction = "changed"
	DocumentDeleted DocumentAction = "deleted"
)

// FieldChange is a field that gets another value. It is named as the JSON form has it, such as request.args.level, with keys that have a dot
// as JSON texts, and its values are JSON texts, of which only the beginning is there if they are long. What is in a map is one field where
// there is much in it. Secrets are "***".
type FieldChange struct {
	Field string `json:"field" msgpack:"field"`
	Old   string `json:"old,omitempty" msgpack:"old,omitempty"` // "": it is not set
	New   string `json:"new,omitempty" msgpack:"new,omitempty"` // "": it is not set any more
}

// Apply makes schedules, groups, windows, notifications and retention rules what the documents say, all of them in one commit or nothing, and notes that
// managedBy manages them: nobody can put or delete them otherwise, but everybody can pause, skip and run schedules. Those
// that somebody has put by hand are taken over. What is as its document says is not touched, and goes on in its times.
// See ApplyOptions for what else it does.
//
// Errors: ErrInvalid, naming the field as documents[3].cron, as [Schedules.Put], [Groups.Put], [Maintenance.Put], [Notifications.Put] and [Retention.Put] have it,
// and what CheckDocuments says; ErrConflict (another one manages what a document is of; a group that is to be deleted is used), ErrRefused (there
// are too many, or managedBy would manage more than MaxDocuments), ErrDenied, ErrUnavailable, ErrClosed.
func (s *Schedules) Apply(ctx context.Context, managedBy string, documents []Document, o ApplyOptions) (Applied, error) {
	documents = slices.Clone(documents)
	for i, d := range documents {
		if d.Schedule != nil {
			without := *d.Schedule
			without.Request.ID = ""
			documents[i].Schedule = &without
		}
	}
	if err := CheckDocuments(managedBy, documents); err != nil {
		return Applied{}, err
	}
	return s.service.ApplyDocuments(ctx, NewID(), managedBy, documents, o)
}
