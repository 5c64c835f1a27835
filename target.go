package harp

import (
	"context"

	"github.com/harpcaller/harp/target"
)

// Target is a handle of the hosts that an expression selects, such as web* or
// "role=web and fact.kernel>=6.1": package target has the grammar. Which hosts these are
// is found out when it is asked. It is safe for concurrent use.
type Target struct {
	service Service
	text    string
}

// Target returns a handle of the hosts that an expression selects. It is not looked at
// before it is used.
func (c *Caller) Target(text string) *Target { return &Target{service: c.service, text: text} }

// String returns the expression as it was given.
func (t *Target) String() string { return t.text }

// Hosts returns the names of the hosts, sorted. Errors: ErrInvalid (target), ErrNotFound (a
// host that is written out in it is not known, or it selects none), ErrUnavailable,
// ErrClosed.
func (t *Target) Hosts(ctx context.Context) ([]string, error) {
	if t.text == "" {
		return nil, errNoTarget
	}
	var names []string
	for h, err := range (&Hosts{t.service}).List(ctx, t.text) {
		if err != nil {
			return nil, err
		}
		names = append(names, h.Name)
	}
	return names, nil
}

var errNoTarget = &FieldError{Field: "target", Message: "must not be empty; * selects all hosts"}

// Explain says how many hosts each part of the target selects by itself. With a host it
// says whether each part selects that one, and what the host has there. Errors: ErrInvalid
// (target), ErrNotFound (the host), ErrRefused (the target has too many parts),
// ErrUnavailable, ErrClosed.
func (t *Target) Explain(ctx context.Context, host string) (target.Node, error) {
	if t.text == "" {
		return target.Node{}, errNoTarget
	}
	return t.service.ExplainTarget(ctx, t.text, host)
}
