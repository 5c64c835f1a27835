package harp

import "fmt"

// Document is a schedule, a group or a window as people keep it in a file: exactly one of the fields is set. Of a Group
// only its Name and its Target count.
type Document struct {
	Schedule *Schedule `json:"schedule,omitempty" msgpack:"schedule,omitempty"`
	Group    *Group    `json:"group,omitempty" msgpack:"group,omitempty"`
	Window   *Window   `json:"window,omitempty" msgpack:"window,omitempty"`
}

// DocumentKind says what a document is of.
type DocumentKind string

// The kinds of documents.
const (
	ScheduleDocument DocumentKind = "schedule"
	GroupDocument    DocumentKind = "group"
	WindowDocument   DocumentKind = "window"
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
	}
	return ""
}

// Check returns ErrInvalid, naming the field, unless the document is of exactly one thing, which its own Check
// accepts.
func (d Document) Check() error {
	set := 0
	for _, is := range []bool{d.Schedule != nil, d.Group != nil, d.Window != nil} {
		if is {
			set++
		}
	}
	switch {
	case set != 1:
		return &FieldError{Field: "kind", Message: fmt.Sprintf("must be one of %s, %s and %s", ScheduleDocument, GroupDocument, WindowDocument)}
	case d.Schedule != nil:
		return d.Schedule.Check()
	case d.Group != nil:
		return d.Group.Check()
	default:
		return d.Window.Check()
	}
}

// CheckDocuments returns ErrInvalid, naming the field, such as documents[3].cron, unless documents may be given to
// [Schedules.Apply]: MaxDocuments at most, each of which is good and has a name of its own among those of its kind.
func CheckDocuments(managedBy string, documents []Document) error {
	if err := checkName("managed_by", managedBy, MaxManagedBy); err != nil {
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
