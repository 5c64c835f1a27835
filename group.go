package harp

import (
	"context"
	"fmt"
	"iter"
	"time"
)

// Groups looks at groups and changes them. A group is a target with a name, which other
// targets use as @NAME. Which hosts it selects is found out when it is used.
type Groups struct{ service Service }

// Groups returns the handle for looking at groups and changing them.
func (c *Caller) Groups() *Groups { return &Groups{service: c.service} }

// Group is a target with a name.
type Group struct {
	Name    string    `json:"name" msgpack:"name"`
	Target  string    `json:"target" msgpack:"target"`
	Changed time.Time `json:"changed" msgpack:"changed"` // the dispatcher's clock, UTC
	By      Principal `json:"by" msgpack:"by"`           // who has changed it last

	ManagedBy string `json:"managed_by,omitempty" msgpack:"managed,omitempty"` // who applies its document; "": it was put by hand
}

// Check returns ErrInvalid, naming the field, unless the group has a name of 1 to
// MaxGroupName bytes and a target of as many as MaxGroupTarget. What is in the target is not
// looked at.
func (g Group) Check() error {
	if err := checkShown("name", g.Name, MaxGroupName); err != nil {
		return err
	}
	if g.Target == "" {
		return errNoTarget
	}
	if len(g.Target) > MaxGroupTarget {
		return &FieldError{Field: "target", Message: fmt.Sprintf("at byte %d: at most %d bytes", MaxGroupTarget, MaxGroupTarget)}
	}
	return nil
}

// List yields all groups, by name. Errors: ErrUnavailable, ErrClosed.
func (g *Groups) List(ctx context.Context) iter.Seq2[Group, error] {
	return pages(func(cursor string) (Page[Group], error) { return g.service.ListGroups(ctx, "", cursor) })
}

// Get returns one group. Errors: ErrInvalid (no name), ErrNotFound, ErrUnavailable, ErrClosed.
func (g *Groups) Get(ctx context.Context, name string) (Group, error) {
	if err := checkName("name", name, MaxGroupName); err != nil {
		return Group{}, err
	}
	page, err := g.service.ListGroups(ctx, name, "")
	switch {
	case err != nil:
		return Group{}, err
	case len(page.Items) == 0:
		return Group{}, notFoundError("group", name)
	}
	return page.Items[0], nil
}

// Put makes a group, or gives it another target. The target may use other groups, 8 deep.
// Errors: ErrInvalid (name; target: it cannot be read, uses a group that there is not, or
// itself, also by way of others), ErrRefused (there are too many groups), ErrConflict (its document is
// applied by whoever is named), ErrUnavailable, ErrClosed.
func (g *Groups) Put(ctx context.Context, name, expr string) error {
	if err := (Group{Name: name, Target: expr}).Check(); err != nil {
		return err
	}
	return g.service.PutGroup(ctx, NewID(), name, expr)
}

// Delete deletes a group. Runs of schedules that use it fail from then on. Errors: ErrInvalid (no name),
// ErrNotFound, ErrConflict (another group, a window or a notification uses it, which is named, or its document
// is applied by whoever is named), ErrUnavailable, ErrClosed.
func (g *Groups) Delete(ctx context.Context, name string) error {
	if err := checkName("name", name, MaxGroupName); err != nil {
		return err
	}
	return g.service.DeleteGroup(ctx, NewID(), name)
}
