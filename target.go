package harp

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/harpcaller/harp/target"
)

// Target is a handle of the hosts that an expression selects, such as web* or
// "role=web and fact.kernel>=6.1": package target has the grammar. Which hosts these are
// is found out when it is asked. It is safe for concurrent use.
type Target struct {
	caller *Caller
	text   string
	opts   []Option
}

// Target returns a handle of the hosts that an expression selects. It is not looked at
// before it is used. The options apply to each of its calls.
func (c *Caller) Target(text string, opts ...Option) *Target {
	return &Target{caller: c, text: text, opts: slices.Concat(c.opts, opts)}
}

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
	for h, err := range (&Hosts{t.caller.service}).List(ctx, t.text) {
		if err != nil {
			return nil, err
		}
		names = append(names, h.Name)
	}
	return names, nil
}

var errNoTarget = &FieldError{Field: "target", Message: "must not be empty; * selects all hosts"}

// Call submits a batch: a call of a procedure on each host that the target selects now. It returns
// as soon as the batch, with the names of its hosts, is on the dispatcher's disk; the hosts are
// reached in the order of their names, as the options say. args and the options of each call are as
// [Host.Call] takes them; [JobID] is the id of the batch, and an [IdempotencyKey] counts per caller,
// target and procedure. A target has at most MaxTarget bytes; one that lists names, and has nothing else, may have
// MaxHostList of them.
//
// Errors: ErrInvalid (target, an option, or arguments that do not fit the procedure's schema on some
// host), ErrNotFound (a host that is written out in the target is not known, it selects none, or a
// host has said that it has no such procedure), ErrConflict (the id is another request's; Confirmed:
// the target selects other hosts), ErrPruned (the id is too old), ErrUnreachable (FailFast and a host
// is away), ErrRefused (MaxHosts; or there are more hosts or members than the dispatcher allows),
// ErrDenied, ErrUnavailable when nothing was sent, and a *CallError, which is ErrUnavailable too,
// when the batch may have been accepted.
func (t *Target) Call(ctx context.Context, procedure string, args any, opts ...Option) (*Batch, error) {
	if t.text == "" {
		return nil, WrapCallError(procedure, t.text, errNoTarget)
	}
	req, hosts, err := t.batchRequest(procedure, args, opts)
	if err != nil {
		return nil, WrapCallError(procedure, t.text, err)
	}
	return submitBatch(ctx, t.caller.service, req, hosts)
}

// batchRequest is the request of a batch on the target. The hosts of a list that is too long for it are beside it.
func (t *Target) batchRequest(procedure string, args any, opts []Option) (req Request, hosts []byte, err error) {
	var on Request
	if on.Target, err = canonicalTarget(t.text); err != nil {
		return req, nil, err
	}
	if on.List, hosts, err = newHostList(on.Target); err != nil {
		return req, nil, err
	}
	if on.List != nil {
		on.Target = ""
	}
	req, err = newBatchRequest(on, procedure, args, slices.Concat(t.opts, opts))
	return req, hosts, err
}

// canonicalTarget is an expression as [target.Expr.String] writes it. Errors: ErrInvalid (target).
func canonicalTarget(text string) (string, error) {
	if text == "" {
		return "", errNoTarget
	}
	e, err := target.Parse(text)
	if err != nil {
		return "", &FieldError{Field: "target", Message: strings.TrimPrefix(err.Error(), "target: ")}
	}
	return e.String(), nil
}

// Explain says how many hosts each part of the target selects by itself. With a host it
// says whether each part selects that one, and what the host has there. Errors: ErrInvalid
// (target), ErrNotFound (the host), ErrRefused (the target has too many parts),
// ErrUnavailable, ErrClosed.
func (t *Target) Explain(ctx context.Context, host string) (target.Node, error) {
	if t.text == "" {
		return target.Node{}, errNoTarget
	}
	return t.caller.service.ExplainTarget(ctx, t.text, host)
}

// Preview is what a call of the hosts of a target would meet now.
type Preview struct {
	Hosts     int    `json:"hosts" msgpack:"hosts"`                   // how many the target selects
	Away      int    `json:"away" msgpack:"away,omitempty"`           // of these, neither online nor about to come back
	Unfit     int    `json:"unfit" msgpack:"unfit,omitempty"`         // of these, lack the procedure, or the arguments do not fit
	Held      int    `json:"held" msgpack:"held,omitempty"`           // of these, a maintenance window or a pause keeps the procedure from starting there now
	Gone      int    `json:"gone,omitempty" msgpack:"gone,omitempty"` // of a batch made again: hosts besides these that are not known any more, and are left out
	Dangerous bool   `json:"dangerous" msgpack:"danger,omitempty"`    // a host that is fit declares the procedure so, of a chain that of a step: [TraitDangerous]
	Digest    string `json:"digest" msgpack:"digest"`                 // of the names of all hosts and of the request: see [Confirmed]

	Refusal Failure `json:"refusal,omitzero" msgpack:"refusal,omitempty"` // why the batch would be refused now; the zero Failure: it would not

	AwayHosts  []string    `json:"away_hosts,omitempty" msgpack:"awayhosts,omitempty"` // by name, the first 100
	UnfitHosts []UnfitHost `json:"unfit_hosts,omitempty" msgpack:"-"`                  // by name, the first 100
	GoneHosts  []string    `json:"gone_hosts,omitempty" msgpack:"gonehosts,omitempty"` // by name, the first 100
}

// UnfitHost is a host that cannot run a call, and why: Err is ErrNotFound for one that
// lacks the procedure, a [*FieldError] where the arguments do not fit.
type UnfitHost struct {
	Host string `json:"host" msgpack:"host"`
	Err  error  `json:"-" msgpack:"failure"`
}

// unfitJSON is how an UnfitHost is written as JSON.
type unfitJSON struct {
	Host  string  `json:"host"`
	Error Failure `json:"error"`
}

// MarshalJSON writes Err as the [Failure] "error".
func (h UnfitHost) MarshalJSON() ([]byte, error) {
	return plainJSON(unfitJSON{h.Host, FailureOf(h.Err)})
}

// UnmarshalJSON reads what MarshalJSON writes. Errors: those of package json.
func (h *UnfitHost) UnmarshalJSON(text []byte) error {
	var read unfitJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	h.Host, h.Err = read.Host, read.Error.Err()
	return nil
}

// Preview says what [Target.Call], given the same, would meet now: how many hosts there are,
// which are away and which are unfit, whether the procedure is dangerous, and why the batch would
// be refused, if it would. Nothing is stored, and no host is asked but with [Probe]. A host
// that has not said what it offers counts as fit. Errors: ErrInvalid (target, procedure, args, an option),
// ErrNotFound (a host that is written out in the target is not known, or it selects none),
// ErrUnavailable, ErrClosed.
func (t *Target) Preview(ctx context.Context, procedure string, args any, opts ...Option) (Preview, error) {
	req, hosts, err := t.batchRequest(procedure, args, opts)
	if err != nil {
		return Preview{}, err
	}
	return t.caller.service.PreviewBatch(ctx, Submission{Request: req.Encode(), Hosts: hosts})
}
